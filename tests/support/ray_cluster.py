"""A Ray cluster on this machine: a head without CPUs and two workers with one each.

Run as a program, it prints the address of the cluster and then obeys lines of stdin: "kill" kills one of the workers
with SIGKILL, and the end of stdin ends the cluster.
"""

import os
import sys
from typing import Any


def main() -> None:
    """Start the cluster, and end it when told to."""
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    workers = [cluster.add_node(num_cpus=1) for _ in range(2)]
    print(f"cluster at {cluster.address}", flush=True)
    for line in sys.stdin:
        if line == "kill\n":
            cluster.remove_node(workers.pop(), allow_graceful=False)
            print("killed", flush=True)
    cluster.shutdown()


ENVIRONMENT = {
    **os.environ,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # listen on the loopback interface only
    "PYTHONWARNINGS": "ignore",
}
"""The environment of processes that use the cluster."""

if __name__ == "__main__":
    main()
