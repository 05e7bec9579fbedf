"""What `import mccl` shows to whoever looks around in it."""

import json
import subprocess
import sys

LOOK = """
import json, mccl
before = dir(mccl)
mccl.MCCLConfig, mccl.get_metrics
import sys
print(json.dumps([before, dir(mccl), mccl.__all__, [n for n in sys.modules if "mccl." in n]]))
"""


def test_dir_has_what_a_program_may_use_and_nothing_else():
    done = subprocess.run([sys.executable, "-c", LOOK], check=True, capture_output=True, text=True)
    before, after, public, loaded = json.loads(done.stdout)
    assert before == sorted(public)
    assert set(public) <= set(after)
    modules = set(after) - set(public)
    assert {"config", "metrics"} <= modules
    assert {f"mccl.{name}" for name in modules} <= set(loaded)
