"""Recordings of other tools in a capture."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymtap.proxy.core.errors import UsageError
from gymtap.proxy.diagnose import diagnose, from_case
from gymtap.proxy.diagnose.capture import diagnose_row, material_of
from gymtap.proxy.export import Chosen, Wanted
from gymtap.proxy.export.har import entry
from gymtap.proxy.export.lines import exchange_lines
from gymtap.proxy.imports import import_files, read
from gymtap.proxy.store import Capture
from gymtap.schemas import Call, Exchange, GapKind, RowState, ServerKind, State, TransportErrorKind

DATA = Path(__file__).parents[1] / "data"
SHARED = Path(__file__).parents[3] / "shared"


def imported(tmp_path: Path, *files: Path) -> Capture:
    return Capture(import_files(files, tmp_path / "capture").path)


def written(tmp_path: Path, name: str, *lines: Any) -> Path:
    file = tmp_path / name
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return file


def flow(seq: int, hop: str = "agent", at: float = 0.0, took: float | None = 1.0, **said: Any) -> dict[str, Any]:
    times = {"t0": 1_796_000_000.0 + at} | ({} if took is None else {"t1": 1_796_000_000.0 + at + took})
    body = {"req_headers": [["Content-Type", "application/json"]], "req_body": "{}", "path": "/x"}
    return {"seq": seq, "hop": hop, "method": "POST", **times, **body} | said


def by_id(capture: Capture) -> dict[str, Exchange]:
    return {exchange.id: exchange for exchange in capture.exchanges()}


RUN = json.dumps({"_ng_task_index": 3, "_ng_rollout_index": 1, "agent_ref": {"name": "agent"}})


class TestBoundaryFlows:
    def test_a_run_becomes_a_row_with_its_calls(self, tmp_path: Path) -> None:
        """Lines in any order are seen in the order of time, so what was in flight tells the row."""
        answer = {"status": 200, "resp_headers": [["content-type", "application/json"]]}
        file = written(
            tmp_path,
            "flows.jsonl",
            flow(2, "resources", at=1, took=1, path="/verify", req_body=RUN, resp_body='{"reward": 1.0}', **answer),
            flow(1, "agent", at=0, took=5, path="/run", req_body=RUN, resp_body='{"reward": 1.0}', **answer),
        )
        capture = imported(tmp_path, file)
        (row,) = capture.rows()
        assert (row.key.label, row.state, row.reward, row.exchanges) == ("3.1", RowState.DONE, 1.0, 2)
        verify = by_id(capture)["a2"]
        assert (verify.call, verify.parent, verify.duration_ms) == (Call.VERIFY, "a1", 1000.0)
        assert capture.gaps() == ()

    def test_a_named_parent_is_believed(self, tmp_path: Path) -> None:
        """Where the recording says what caused an exchange, that is its parent."""
        file = written(
            tmp_path,
            "flows.jsonl",
            flow(7, at=0, took=5, path="/run", req_body=RUN, status=200),
            flow(8, at=0, took=5, path="/run", req_body=RUN.replace("3", "4"), status=200),
            flow(9, "provider", at=1, path="/v1/chat/completions", status=200, parent="7"),
        )
        leaf = by_id(imported(tmp_path, file))["a3"]
        assert leaf.parent == "a1"
        assert leaf.attribution.row is not None
        assert leaf.attribution.row.label == "3.1"

    def test_ends_are_told_apart(self, tmp_path: Path) -> None:
        """A broken connection, a time limit of the caller's, and an exchange that never ended."""
        file = written(
            tmp_path,
            "flows.jsonl",
            flow(1, error="ServerDisconnectedError('Server disconnected')"),
            flow(2, at=1, error="TimeoutError: Request timed out."),
            flow(3, at=2, took=None),
        )
        found = by_id(imported(tmp_path, file))
        kinds = [one.error and one.error.kind for one in found.values()]
        assert kinds == [TransportErrorKind.CLOSED, TransportErrorKind.CLIENT_GONE, TransportErrorKind.TAP_STOPPED]
        assert {one.state for one in found.values()} == {State.FAILED}

    def test_decoded_bodies_are_kept_whatever_their_headers_say(self, tmp_path: Path) -> None:
        """A body that is text already is not decoded again for its content-encoding."""
        headers = [["content-encoding", "br"], ["content-type", "text/plain"]]
        file = written(tmp_path, "f.jsonl", flow(1, status=200, resp_headers=headers, resp_body="plain text"))
        capture = imported(tmp_path, file)
        response = by_id(capture)["a1"].response
        assert response is not None
        assert response.body is not None
        assert capture.body(response.body) == b"plain text"
        assert ("content-encoding", "br") in response.headers

    def test_secrets_do_not_reach_the_disk(self, tmp_path: Path) -> None:
        """Imports pass the same redaction as live traffic."""
        secret = "sk-proj-Abcdefghijklmnop0123456789abcdefghij"
        file = written(tmp_path, "f.jsonl", flow(1, status=200, req_headers=[["Authorization", f"Bearer {secret}"]]))
        imported(tmp_path, file)
        assert all(secret.encode() not in found.read_bytes() for found in (tmp_path / "capture").iterdir())

    @pytest.mark.parametrize("name", ["flow_single_tool_call_ok.jsonl", "flow_single_agent_turn_openai_model.jsonl"])
    def test_a_real_run(self, tmp_path: Path, name: str) -> None:
        """Every exchange of a real run's recording is there, its rows have their rewards, and nothing is a gap."""
        lines = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
        capture = imported(tmp_path, DATA / name)
        assert capture.count() == len(lines)
        rows = list(capture.rows())
        assert rows
        assert all(row.state is RowState.DONE and row.reward is not None for row in rows)
        assert capture.gaps() == ()


class TestModelCalls:
    def test_the_files_name_is_the_rollout(self, tmp_path: Path) -> None:
        """Gym's capture of a rollout's model calls is attributed to that rollout."""
        line = {
            "model_call_id": "f9",
            "dialect": "responses",
            "model_ref": {"type": "responses_api_models", "name": "policy"},
            "started_at": 1_796_006_486.5,
            "completed_at": 1_796_006_487.0,
            "latency_ttft_ms": 20.5,
            "status_code": 200,
            "request": {"input": []},
            "response": {"id": "resp_1"},
        }
        capture = imported(tmp_path, written(tmp_path, "2-1.capture.jsonl", line))
        found = by_id(capture)["a1"]
        assert (found.server, found.kind, found.request.target) == (
            "policy",
            ServerKind.MODEL,
            "/ng-rollout/2-1/v1/responses",
        )
        assert found.attribution.row is not None
        assert found.attribution.row.label == "2.1"
        assert found.duration_ms == pytest.approx(500)
        assert found.response is not None
        assert found.response.first_byte_ms == pytest.approx(20.5)

    @pytest.mark.parametrize(
        ("said", "status", "body", "kind"),
        [
            ({"status_code": 400, "error_category": "client_error", "response_raw": "no!"}, 400, b"no!", None),
            ({"status_code": 200, "response_raw": "data: {}\n\n", "response": {"id": 1}}, 200, b"data: {}\n\n", None),
            (
                {"status_code": 200, "error_category": "stream_truncated", "response_raw": "data: "},
                200,
                b"data: ",
                "closed",
            ),
            ({"status_code": None, "error_category": "timeout"}, None, b"", "client_gone"),
            ({"status_code": None, "error_category": "cancelled"}, None, b"", "client_gone"),
            ({"status_code": None, "error_category": "connection"}, None, b"", "closed"),
        ],
    )
    def test_what_gym_could_not_parse(
        self, tmp_path: Path, said: dict[str, Any], status: int | None, body: bytes, kind: str | None
    ) -> None:
        """A provider's raw words, a stream as it was sent, and how a call without an answer ended, are kept."""
        line = {"model_call_id": "f", "dialect": "chat", "started_at": 1.0, "completed_at": 2.0} | said
        capture = imported(tmp_path, written(tmp_path, "2-1.capture.jsonl", line))
        found = by_id(capture)["a1"]
        assert found.request.target == "/ng-rollout/2-1/v1/chat/completions"
        assert (found.response and found.response.status) == status
        assert (found.error and found.error.kind) == kind
        assert (capture.body(found.response.body if found.response else None) or b"") == body

    def test_gyms_own_files(self, tmp_path: Path) -> None:
        """The files that a real run left are read whole."""
        files = sorted(SHARED.glob("gym/samples/files_left_by_run_observability/model_call_capture/*.jsonl"))
        if not files:
            pytest.skip("the files of a real run are not beside this repository")
        capture = imported(tmp_path, *files)
        assert capture.count() == sum(len(file.read_text().splitlines()) for file in files)
        failed = {exchange.attribution.row for exchange in capture.exchanges(failed=True)}
        assert all(diagnose_row(capture, row, now_ns=0).rule for row in capture.rows() if row.key in failed)
        assert {row.key.label for row in capture.rows()} == {
            file.name.removesuffix(".capture.jsonl").replace("-", ".") for file in files
        }


def exchange(boundary: str, path: str = "/run", status: int | None = 200, **said: Any) -> dict[str, Any]:
    request = {"method": "POST", "url": f"http://127.0.0.1:15001{path}", "headers": {}, "body_text": RUN}
    response = None if status is None else {"status": status, "headers": {}, "body_text": "{}"}
    return {"boundary": boundary, "request": request, "response": response} | said


class TestExchangeLists:
    def test_undated_exchanges_nest_as_their_boundaries_do(self, tmp_path: Path) -> None:
        """Without times, the list's order and the ends of the boundaries make the call tree."""
        report = {
            "exchanges": [
                exchange("collector->agent"),
                exchange("agent->resources", "/seed_session"),
                exchange("agent->agent", "/v1/responses"),
                exchange("agent->model", "/v1/responses"),
                exchange("model->provider", "/v1/chat/completions", 429),
                exchange("agent->resources", "/lookup"),
                exchange("agent->resources", "/verify"),
            ]
        }
        file = tmp_path / "case.json"
        file.write_text(json.dumps(report, indent=2))
        capture = imported(tmp_path, file)
        spans = {
            found.request.target: (found.started_ns, found.started_ns + round((found.duration_ms or 0) * 1e6))
            for found in list(capture.exchanges())
            if found.call is not Call.RESPONSES
        }
        inside = [("/v1/chat/completions", "/v1/responses"), ("/lookup", "/run"), ("/verify", "/run")]
        for inner, outer in inside:
            assert spans[outer][0] < spans[inner][0] < spans[inner][1] < spans[outer][1], (inner, outer)
        calls = [found.call for found in capture.exchanges()]
        assert calls == [
            *(Call.RUN, Call.SEED_SESSION, Call.RESPONSES, Call.MODEL, Call.PROVIDER, Call.TOOL, Call.VERIFY)
        ]
        assert all(found.attribution.row is not None for found in capture.exchanges())

    def test_what_never_ended_keeps_its_age(self, tmp_path: Path) -> None:
        """An open exchange is as old as its note says."""
        hanging = exchange("collector->agent", status=None, note="open 3600000 ms", t_ms=0)
        capture = imported(tmp_path, written(tmp_path, "case.json", {"exchanges": [hanging]}))
        (found,) = capture.exchanges()
        assert found.error is not None
        assert found.error.kind is TransportErrorKind.TAP_STOPPED
        assert found.duration_ms == 3_600_000

    def test_lists_do_not_overlap(self, tmp_path: Path) -> None:
        """Undated recordings come one after another, so the rows of one never hold those of the next."""
        files = [
            written(tmp_path, f"{name}.json", {"exchanges": [exchange("collector->agent", t_ms=0, duration_ms=9e6)]})
            for name in ("one", "two")
        ]
        first, second = imported(tmp_path, *files).exchanges()
        assert first.started_ns + (first.duration_ms or 0) * 1e6 < second.started_ns

    @pytest.mark.parametrize("timed", [True, False])
    def test_boundaries_name_what_caused_a_call(self, tmp_path: Path, *, timed: bool) -> None:
        """A call's parent is the exchange that its caller was answering: its judge's calls belong to a verify."""
        boundaries = ["collector->agent", "agent->resources", "resources->judge_model", "judge_model->provider"]
        paths = ["/run", "/verify", "/v1/responses", "/v1/chat/completions"]
        listed = [
            exchange(boundary, path, **({"t_ms": number, "duration_ms": 90 - 10 * number} if timed else {}))
            for number, (boundary, path) in enumerate(zip(boundaries, paths, strict=True))
        ]
        found = list(imported(tmp_path, written(tmp_path, "case.json", {"exchanges": listed})).exchanges())
        assert [one.parent for one in found] == [None, "a1", "a2", "a3"]
        assert [one.caller for one in found] == [None, "agent", "resources", "model"]

    def test_two_that_may_have_caused_it(self, tmp_path: Path) -> None:
        """Of two that were open at once, neither is named."""
        listed = [
            exchange("collector->agent", t_ms=0, duration_ms=50),
            exchange("collector->agent", t_ms=10, duration_ms=90),
            exchange("agent->tool", "/x", t_ms=20, duration_ms=10) | {"request": {"url": "/x"}},
        ]
        found = list(imported(tmp_path, written(tmp_path, "case.json", {"exchanges": listed})).exchanges())
        assert found[2].parent is None

    def test_a_call_whose_caller_is_not_there(self, tmp_path: Path) -> None:
        """It lies within the /run that was open, and so belongs to its row."""
        listed = [exchange("environment->agent", status=500), exchange("judge_model->provider", "/v1/responses", 500)]
        capture = imported(tmp_path, written(tmp_path, "case.json", {"exchanges": listed}))
        (row,) = capture.rows()
        assert (row.exchanges, row.failed_exchanges) == (2, 2)

    def test_a_case_and_its_capture_agree(self, tmp_path: Path) -> None:
        """What a list of exchanges says at once, its capture says too: layer and rule, time limits among them."""
        files = sorted(SHARED.glob("cases/*.json"))
        if not files:
            pytest.skip("the cases are not beside this repository")
        differing = []
        for file in files:
            case = json.loads(file.read_text())
            if case.get("exchanges") and case.get("slug") != "capture-empty-without-prefix":  # its calls share no row
                said = diagnose(from_case({"exchanges": case["exchanges"]}))
                capture = Capture(import_files([file], tmp_path / file.stem).path)
                found = [diagnose_row(capture, row, now_ns=0) for row in capture.rows()]
                found = found or [diagnose(material_of(capture, capture.exchanges(), now_ns=0))]
                if (said.layer, said.rule) not in {(one.layer, one.rule) for one in found}:
                    differing.append(file.name)
        assert differing == []

    def test_a_callers_time_limit_is_kept(self, tmp_path: Path) -> None:
        """A /run that its caller cut after a round time is diagnosed as its limit, from a capture too."""
        said = {"type": "TimeoutError", "message": ""}
        cut = exchange("collector->agent", status=None, transport_error=said, t_ms=0, duration_ms=30_001)
        capture = imported(tmp_path, written(tmp_path, "case.json", {"exchanges": [cut]}))
        (row,) = capture.rows()
        found = diagnose_row(capture, row, now_ns=0)
        assert (found.rule, found.chain[0].error) == ("config.run_limit", "time limit")

    def test_every_case(self, tmp_path: Path) -> None:
        """All reports that have exchanges are read whole, each of them into rows."""
        files = sorted(SHARED.glob("cases/*.json"))
        if not files:
            pytest.skip("the cases are not beside this repository")
        lists = [json.loads(file.read_text()).get("exchanges") for file in files]
        chosen = [file for file, exchanges in zip(files, lists, strict=True) if exchanges]
        capture = imported(tmp_path, *chosen)
        assert capture.count() == sum(len(exchanges) for exchanges in lists if exchanges)
        assert capture.gaps() == ()
        unknown = sum(found.attribution.row is None for found in capture.exchanges())
        assert unknown <= capture.count() * 0.12


HAR_ENTRY = {
    "startedDateTime": "2026-11-30T02:29:14.250Z",
    "time": 30,
    "request": {
        "method": "POST",
        "url": "https://api.example.com/v1/chat/completions?a=b",
        "httpVersion": "HTTP/2.0",
        "headers": [{"name": "content-type", "value": "application/json"}],
        "postData": {"mimeType": "application/json", "text": '{"model": "m"}'},
    },
    "response": {
        "status": 429,
        "statusText": "Too Many Requests",
        "headers": [{"name": "content-encoding", "value": "gzip"}],
        "content": {"size": 5, "text": "c2xvdyE=", "encoding": "base64"},
    },
    "timings": {"blocked": -1, "send": 1, "wait": 20, "receive": 9},
}


class TestHar:
    def test_an_entry_of_a_browser(self, tmp_path: Path) -> None:
        """Times, bodies and the origin come over; -1 is not known."""
        capture = imported(tmp_path, written(tmp_path, "a.har", {"log": {"entries": [HAR_ENTRY]}}))
        (found,) = capture.exchanges()
        assert found.server == "api.example.com"
        assert found.request.target == "/v1/chat/completions?a=b"
        assert found.started_ns == 1_796_005_754_250_000_000
        assert (found.duration_ms, found.request_done_ms, found.request.http_version) == (30.0, 1.0, "2.0")
        response = found.response
        assert response is not None
        assert (response.status, response.first_byte_ms) == (429, 21.0)
        assert response.body is not None
        assert capture.body(response.body) == b"slow!"
        assert capture.servers()[0].upstream == "https://api.example.com"

    def test_what_browsers_write(self, tmp_path: Path) -> None:
        """`h2` is HTTP/2, its pseudo fields are none, and a body that was not saved is told of, not taken for empty."""
        pseudo = [{"name": ":path", "value": "/x"}, {"name": "accept", "value": "*/*"}]
        request = {"method": "GET", "url": "https://x.example/x", "httpVersion": "h2", "headers": pseudo}
        response = {"status": 200, "headers": [], "content": {"size": 1234, "mimeType": "text/plain"}}
        file = written(
            tmp_path, "a.har", {"log": {"entries": [HAR_ENTRY | {"request": request, "response": response}]}}
        )
        done = import_files([file], tmp_path / "capture")
        assert done.left_out == [f"{file}: log.entries[0]: its response body (1,234 bytes) is not in the file"]
        assert done.whole
        (found,) = Capture(done.path).exchanges()
        assert (found.request.http_version, found.request.headers) == ("2.0", (("accept", "*/*"),))

    def test_a_websocket(self, tmp_path: Path) -> None:
        """Its messages become the bodies, as live, and go out as they came."""
        messages = [
            {"type": "send", "time": 1_796_005_754.5, "opcode": 1, "data": "h\u00e9"},
            {"type": "receive", "time": 1_796_005_754.75, "opcode": 2, "data": "/w=="},
        ]
        upgrade = [{"name": "Upgrade", "value": "websocket"}]
        socket = {
            "request": {"method": "GET", "url": "wss://x.example/ws", "headers": upgrade},
            "response": {"status": 101, "headers": upgrade, "content": {"size": 0}},
            "_webSocketMessages": messages,
        }
        file = written(tmp_path, "a.har", {"log": {"entries": [HAR_ENTRY | socket]}})
        (kept,) = Chosen(imported(tmp_path, file), Wanted())
        assert json.loads(kept.request_body or b"") == {
            "at_ns": 1_796_005_754_500_000_000,
            "type": "text",
            "text": "hé",
        }
        assert entry(kept)["_webSocketMessages"] == messages

    def test_no_answer(self, tmp_path: Path) -> None:
        """Status 0 is a browser's word for no answer; `_error` says why."""
        refused = HAR_ENTRY | {"response": {"status": 0, "_error": "net::ERR_CONNECTION_REFUSED"}}
        (found,) = imported(tmp_path, written(tmp_path, "a.har", {"log": {"entries": [refused]}})).exchanges()
        assert found.response is None
        assert found.error is not None
        assert found.error.kind is TransportErrorKind.REFUSED


class TestDamage:
    def test_a_har_that_is_cut_off(self, tmp_path: Path) -> None:
        """Wherever it is cut, all entries before that are kept, and there is a gap of unknown size."""
        entries = [HAR_ENTRY | {"comment": str(number)} for number in range(3)]
        text = json.dumps({"log": {"version": "1.2", "entries": entries}})
        ends = [text.index(f'"comment": "{number}"') + len('"comment": "0"}') for number in range(3)]
        for cut in (ends[0], ends[0] + 1, ends[1] - 1, ends[2] - 30, ends[2]):
            file = tmp_path / f"{cut}.har"
            file.write_text(text[:cut])
            done = import_files([file], tmp_path / f"capture-{cut}")
            assert done.exchanges == sum(end <= cut for end in ends)
            assert f"{file}:1: not JSON" in done.left_out[0]
            (gap,) = Capture(done.path).gaps()
            assert (gap.kind, gap.count) == (GapKind.UNPARSED, None)

    def test_an_entry_that_is_none(self, tmp_path: Path) -> None:
        """One that lacks what it must have is left out, counted and named; the others are kept."""
        file = written(tmp_path, "a.har", {"log": {"entries": [HAR_ENTRY, {"time": 1}, HAR_ENTRY]}})
        done = import_files([file], tmp_path / "capture")
        assert (done.exchanges, done.whole) == (2, False)
        assert done.left_out == [f"{file}: log.entries[1]: startedDateTime: Field required"]
        assert [gap.count for gap in Capture(done.path).gaps()] == [1]

    def test_lines_that_are_none(self, tmp_path: Path) -> None:
        """A line that is cut, wherever it is, costs itself only; many are counted, and the first of them named."""
        good = json.dumps(flow(1))
        file = written(tmp_path, "f.jsonl", '{"hop": "agent", "pa', good, *["{"] * 9, good)
        done = import_files([file], tmp_path / "capture")
        assert done.exchanges == 2
        assert [line.partition(": ")[0] for line in done.left_out] == [f"{file}:1", f"{file}:3", f"{file}:4", str(file)]
        assert done.left_out[-1].endswith("7 more like these")
        assert [gap.count for gap in Capture(done.path).gaps()] == [10]

    def test_a_report_that_is_cut_off(self, tmp_path: Path) -> None:
        """Its exchanges up to there are kept."""
        text = json.dumps({"exchanges": [exchange("collector->agent"), exchange("agent->model", "/v1/responses")]})
        file = tmp_path / "case.json"
        file.write_text(text[:-40])
        done = import_files([file], tmp_path / "capture")
        assert (done.exchanges, done.whole) == (1, False)

    def test_exports_one_after_another(self, tmp_path: Path, demo_capture: Path) -> None:
        """Two exports in one file are two recordings: equal ids in them are not the same exchange."""
        demo = Capture(demo_capture)
        text = b"".join(exchange_lines(demo, Chosen(demo, Wanted())))
        (tmp_path / "twice.jsonl").write_bytes(text + text)
        done = import_files([tmp_path / "twice.jsonl"], tmp_path / "capture")
        assert (done.exchanges, done.whole) == (2 * demo.count(), True)
        assert Capture(done.path).count() == 2 * demo.count()

    def test_a_gap_is_where_it_was(self, tmp_path: Path, demo_capture: Path) -> None:
        """Of a damaged export, the gap has the time of what was read last before it."""
        demo = Capture(demo_capture)
        lines = list(exchange_lines(demo, Chosen(demo, Wanted())))
        (tmp_path / "cut.jsonl").write_bytes(b"".join(lines[:9]) + lines[9][:-20])
        done = import_files([tmp_path / "cut.jsonl"], tmp_path / "capture")
        back = Capture(done.path)
        (gap,) = back.gaps()
        assert (done.exchanges, gap.at_ns) == (8, list(back.exchanges())[-1].started_ns)
        assert "cut.jsonl:10: not JSON" in gap.detail

    def test_a_byte_order_mark(self, tmp_path: Path) -> None:
        """Tools of Windows write one; it says nothing."""
        file = tmp_path / "a.har"
        file.write_text(json.dumps({"log": {"entries": [HAR_ENTRY]}}), encoding="utf-8-sig")
        assert imported(tmp_path, file).count() == 1


class TestWhatCannotBeRead:
    @pytest.mark.parametrize(
        ("content", "says"),
        [
            ("", "empty"),
            ("nothing at all", ":1: not JSON"),
            ('{"hop": "a", "path": "/"}', ":1: method"),
            ('{"hop": "a", "pa', ":1: not JSON: it ends in a string (byte 13)"),
            ('{"hop": "a",\n "path" 7}', ":2: not JSON: : is expected"),
            ('{"colour": "red"}', ":1: no format"),
            ('{"exchanges": 7}', ":1: no format"),
            ('[\n {"boundary": "a->b"}\n]', "[0]: request"),
            ('[\n {"exchange": "a->b"}\n]', "no `exchanges` in it"),
            ('{"log": {"entries": [{"startedDateTime": "2026', ":1: not JSON: it ends in the middle of a value"),
            ('{"log": {"entries": [{"time": 1}]}}', "log.entries[0]: startedDateTime"),
            ('{"schema": "gymtap.exchange/9"}', ":1: schema"),
            ("12:abc", "flow 1"),
        ],
    )
    def test_the_place_is_named(self, tmp_path: Path, content: str, says: str) -> None:
        """An error names the file and the line, and nothing is made."""
        file = tmp_path / "given"
        file.write_text(content)
        with pytest.raises(UsageError) as caught:
            import_files([file], tmp_path / "capture")
        assert str(file) in str(caught.value)
        assert says in str(caught.value)
        assert not (tmp_path / "capture").exists()

    def test_a_folder(self, tmp_path: Path) -> None:
        """A folder is named as such."""
        with pytest.raises(UsageError, match="directory"):
            read(tmp_path)

    def test_a_capture(self, tmp_path: Path, demo_capture: Path) -> None:
        """A capture needs no import."""
        file = next(demo_capture.glob("*.sqlite*"), None) or next(
            found for found in demo_capture.iterdir() if found.is_file()
        )
        with pytest.raises(UsageError, match="a capture already"):
            read(file)

    @settings(max_examples=150, deadline=None)
    @given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode) | st.just(b'{"hop":1,"path":[]}'))
    def test_any_bytes(self, tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
        """Whatever a file holds, it is read or refused in words."""
        file = tmp_path_factory.getbasetemp() / f"any-{os.getpid()}"
        file.write_bytes(content)
        try:
            found: list[Any] | str = [item for recording in read(file) for item in recording.items]
        except UsageError as error:
            found = str(error)
        assert isinstance(found, list) or str(file) in found
