"""One row in one file: everything that reads captures reads it, and nothing secret is in it."""

import resource
import shutil
import sqlite3

import pytest

from gymtap.proxy.replay import bundle as bundles
from gymtap.proxy.store import Capture, CaptureWriter
from gymtap.schemas import Call, RowKey


@pytest.fixture
def bundle(gym, gymtap, tmp_path):
    file = tmp_path / "elsewhere" / "row.gymtap"
    file.parent.mkdir()
    assert gymtap("bundle", "11.0", "-o", str(file), "--capture", str(gym.capture)).code == 0
    return file


def test_a_bundle_has_the_row_as_the_capture_has_it(gym, bundle):
    whole, one = Capture(gym.capture), Capture(bundle)
    row = RowKey(task=11, rollout=0)
    assert [exchange.id for exchange in one.exchanges(row=row)] == [
        exchange.id for exchange in whole.exchanges(row=row)
    ]
    for before, after in zip(whole.exchanges(row=row), one.exchanges(row=row), strict=True):
        assert after.model_dump(exclude={"request", "response"}) == before.model_dump(exclude={"request", "response"})
        assert one.body(after.request.body) == whole.body(before.request.body)
    assert list(one.findings(row=row)) == list(whole.findings(row=row))
    assert one.servers() == whole.servers()


def test_what_is_inside_and_what_is_not_is_said(gymtap, bundle):
    said = gymtap("bundle", str(bundle), "--json").json()
    assert (said["row"], said["beside"], said["left_out_rows"], said["missing_bytes"]) == ("11.0", None, 19, 0)
    assert said["redacted"] > 0
    assert said["size_bytes"] < 60_000
    text = gymtap("bundle", str(bundle)).out
    assert "inside: row 11.0: 12 exchanges" in text
    assert "left out: 19 rows" in text


def test_the_other_commands_open_it_directly_from_an_empty_folder(gymtap, bundle, gym):
    shutil.copy(bundle, bundle.parent.parent / "alone")
    alone = str(bundle.parent.parent / "alone")
    assert gymtap("rows", alone, "--json").json()["rows"][0]["label"] == "11.0"
    gym.with_provider(there=False)
    more = ("--stub", "provider", "--stub-listen", gym.stub, "--yes", "--json")
    [found] = gymtap("replay", alone, *more).json()["results"]
    assert (found["name"], found["verdict"], found["misses"], found["unasked"]) == (
        "11.0", "REPRODUCED", [], 0,
    )  # fmt: skip


def test_a_file_that_is_there_is_not_written_over_unless_it_is_said(gymtap, bundle, gym):
    before = bundle.read_bytes()
    command = ("bundle", "14.0", "-o", str(bundle), "--capture", str(gym.capture))
    assert gymtap(*command).code == 2
    assert bundle.read_bytes() == before
    assert gymtap(*command, "--force").code == 0
    assert bundles.contents(bundle).row == "14.0"
    assert [file.name for file in bundle.parent.iterdir()] == ["row.gymtap"]


def test_a_row_can_be_named_by_an_exchange_of_it(gymtap, gym, tmp_path):
    with Capture(gym.capture) as capture:
        exchange = next(capture.exchanges(row=capture.row(RowKey(task=11, rollout=0)).key))
    file = str(tmp_path / "row.gymtap")
    said = gymtap("bundle", exchange.id, "-o", file, "--json", "--capture", str(gym.capture))
    assert said.json()["row"] == "11.0"


@pytest.mark.parametrize(
    "arguments",
    [
        ["0.0"],
        ["99.0", "-o", "x"],
        ["zero", "-o", "x"],
        ["0.0", "-o", "/no/such/x"],
        ["a1", "-o", "x"],
        ["a0", "-o", "x"],
    ],
)
def test_what_cannot_be_bundled_is_refused_in_one_line(gymtap, gym, arguments):
    said = gymtap("bundle", *arguments, "--capture", str(gym.capture))
    assert said.code in {2, 3}
    assert "Traceback" not in said.err


def test_a_bundle_is_not_put_among_a_captures_own_files(gymtap, gym):
    said = gymtap("bundle", "0.0", "-o", str(gym.capture / "b.sqlite"), "--capture", str(gym.capture))
    assert (said.code, "would lie in a capture" in said.err) == (2, True)


def test_a_file_that_does_not_say_which_row_it_is_for_is_not_replayed(gymtap, gym):
    said = gymtap("replay", str(next(gym.capture.glob("*.sqlite"))), "--yes")
    assert (said.code, "is no bundle" in said.err) == (2, True)


def test_what_is_no_bundle_has_no_contents(gym, tmp_path):
    (tmp_path / "text").write_text("no database")
    assert bundles.contents(tmp_path / "text") is None
    assert bundles.contents(next(gym.capture.glob("*.sqlite"))) is None


def test_cookies_that_the_tap_kept_whole_are_not_whole_in_a_bundle(make, tmp_path):
    signed = "Agent___agent=eyJzZXNzaW9uX2lkIjogIjEifQ==.aSv8xw.Zk2mQ3J0c2lnbmF0dXJlc2lnbmF0dXJl"
    writer = CaptureWriter.create(tmp_path / "capture")
    one = make("a1", Call.RUN, {"a": 1}, {"reward": 1.0}, headers=(("Cookie", signed),))
    with sqlite3.connect(writer.file) as connection:
        writer.add(one.exchange, one.request_body, one.response_body)
        writer.close()
        kept = connection.execute("SELECT record FROM exchanges").fetchone()[0]
        connection.execute("UPDATE exchanges SET record = ?", (kept.replace("<redacted>", signed.rpartition(".")[2]),))
    connection.close()
    assert signed in str(Capture(tmp_path / "capture").exchange("a1").request.headers)
    capture = Capture(tmp_path / "capture")
    bundles.make(capture, capture.row(RowKey(task=3, rollout=0)), tmp_path / "file")
    assert b"Zk2mQ3J0" not in (tmp_path / "file").read_bytes()


def test_a_rollout_of_the_same_task_that_went_well_goes_along_for_the_diagnosis(make, gymtap, tmp_path):
    writer = CaptureWriter.create(tmp_path / "capture")
    for number, status in enumerate((500, 500, 200, 200)):
        row = RowKey(task=3, rollout=number)
        one = make(f"a{number}", Call.RUN, {"n": number}, {"reward": 1.0}, at=number, status=status, row=row)
        writer.add(one.exchange, one.request_body, one.response_body)
    writer.close()
    file = str(tmp_path / "file")
    said = gymtap("bundle", "3.0", "-o", file, "--json", "--capture", str(tmp_path / "capture")).json()
    assert (said["beside"], said["left_out_rows"], said["left_out_exchanges"]) == ("3.2", 2, 2)
    assert [row.key.label for row in Capture(tmp_path / "file").rows()] == ["3.0", "3.2"]


@pytest.mark.parametrize("row", ["2.0", "9.0", "11.0", "17.0", "18.0"])
def test_why_says_the_same_of_a_bundle_in_an_empty_folder_as_of_the_capture(gymtap, gym, tmp_path, row):
    file = tmp_path / "alone" / "row.gymtap"
    file.parent.mkdir()
    gymtap("bundle", row, "-o", str(file), "--capture", str(gym.capture))
    of_capture = gymtap("why", row, "--json", "--capture", str(gym.capture))
    of_bundle = gymtap("why", str(file), "--json")
    assert of_capture.json()["layer"] not in {"none", "unknown"}
    assert of_bundle.json() == of_capture.json()


def test_an_address_that_only_the_bundle_knows_is_asked_about(gymtap, bundle):
    said = gymtap("replay", str(bundle), "--from", "model")
    assert said.code == 2
    assert "is an address that the bundle brought" in said.err
    assert "nobody can be asked" in said.err


@pytest.mark.parametrize("room_bytes", [4_000, 40_000, 150_000])
def test_a_disk_that_is_full_is_one_line_and_leaves_nothing(gymtap, gym, tmp_path, room_bytes):
    """Wherever the writing meets it."""
    (tmp_path / "there").mkdir()
    command = ("bundle", "11.0", "-o", str(tmp_path / "there" / "row.gymtap"), "--capture", str(gym.capture))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, hard))
    try:
        said = gymtap(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (said.code, said.err.count("gymtap: ")) == (3, 1)
    assert list((tmp_path / "there").iterdir()) == []
