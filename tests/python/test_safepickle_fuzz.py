"""The fuzzer of the restricted loader builds and finds nothing in its first streams; `make fuzz-loader` goes on."""

import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parents[2] / "fuzz/unpickle/run.py"


def test_the_first_streams() -> None:
    done = subprocess.run(
        [sys.executable, str(RUN), "--executions", "20000", "--sanitize"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20,000 streams in" in done.stdout
