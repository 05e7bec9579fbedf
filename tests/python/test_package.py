"""What `import mccl` shows to whoever looks around in it."""

import json
import subprocess
import sys

LOOK = """
import json, mccl
before = dir(mccl)
mccl.MCCLConfig, mccl.get_metrics
print(json.dumps([before, dir(mccl), mccl.__all__]))
"""


def test_dir_has_what_a_program_may_use_and_nothing_else():
    done = subprocess.run([sys.executable, "-c", LOOK], check=True, capture_output=True, text=True)
    before, after, public = json.loads(done.stdout)
    assert before == sorted(public)
    assert after == sorted([*public, "config", "metrics"])
