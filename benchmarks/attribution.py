"""What attribution costs: microseconds per exchange of a recording, with the causality header and without.

    python benchmarks/attribution.py [--rounds 5] FLOWS.jsonl

The recording is JSON lines as in tests/data/flow_*.jsonl. Parsing the recording is not measured; the best round counts.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests/core/attribution"))

from transcript import Tap, answer, events, flow_of, kinds_of, load


def main() -> None:
    """Print one line per mode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    records = load(arguments.recording)
    for causality in (True, False):
        best_s = min(measure(records, causality) for _ in range(arguments.rounds))
        mode = "with header" if causality else "without header"
        print(f"{mode:15} {best_s / len(records) * 1e6:6.1f} µs of CPU per exchange, {len(records)} exchanges")


def measure(records: list[dict[str, Any]], causality: bool) -> float:
    """CPU seconds that the addon took for one replay."""
    kinds = kinds_of(records)
    flows = {record["seq"]: flow_of(record, kinds, causality) for record in records}
    tap, taken_s = Tap(), 0.0
    for is_end, record in events(records):
        flow = flows[record["seq"]]
        if is_end:
            answer(flow, record)
        started_s = time.thread_time()
        if is_end:
            tap.addon.ended(flow)
        else:
            tap.addon.opened(flow)
            tap.addon.requested(flow)
        taken_s += time.thread_time() - started_s
    return taken_s


if __name__ == "__main__":
    main()
