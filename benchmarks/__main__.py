"""`make bench`: every benchmark after the other, each printing its table."""

import subprocess
import sys

MODULES = ("benchmarks.bench_parser", "benchmarks.bench_server", "benchmarks.bench_sweep")

for module in MODULES:
    print(f"\n## {module.rpartition('_')[2]}\n", flush=True)
    subprocess.run([sys.executable, "-m", module], check=True)
