"""What NeMo Gym itself ships must pass: a check that cries wolf there is of no use anywhere."""

from pathlib import Path

import pytest

from gymtap.proxy.check.engines import Engines
from gymtap.proxy.check.requests import carriers
from gymtap.proxy.check.row_check import check_rows
from gymtap.proxy.check.tool_check import ToolCheck

_FOLDERS = ("resources_servers", "environments", "responses_api_agents", "benchmarks")
_SITES = sorted((Path.home() / ".cache/gymtap-lab/gym/venv/lib").glob("python3*/site-packages"))
SHIPPED = [site / folder for site in _SITES for folder in _FOLDERS if (site / folder).is_dir()]

pytestmark = [pytest.mark.gym, pytest.mark.skipif(not SHIPPED, reason="needs NeMo Gym installed")]


def test_no_tool_of_any_shipped_dataset_is_an_error(engines: Engines) -> None:
    check = ToolCheck(engines)
    for folder in SHIPPED:
        check.feed(carriers(folder))
    assert check.report.tools > 2000
    assert [met.finding.message for met in check.report.findings if met.finding.severity == "error"] == []


def test_no_row_of_any_shipped_example_is_an_error() -> None:
    files = [file for folder in SHIPPED for file in sorted(folder.rglob("data/example.jsonl"))]
    assert len(files) > 100
    reports = [check_rows(file, jobs=1) for file in files]
    assert {report.file: report.errors for report in reports if report.errors} == {}
