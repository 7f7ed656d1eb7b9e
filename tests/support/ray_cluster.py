"""A Ray cluster of two nodes on loopback, for tests: ``python ray_cluster.py FOLDER``.

It has 2 cores a node and 4 GPUs, on paper, on the first one. A line on its standard input is a
command and answered by a line; at the end of the input, all its processes are stopped.
"""

import os
import sys

# The address of this machine that others see is not asked for; processes listen on 127.0.0.1.
ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # each takes a second of a core
    # A node that is gone is missed at once, and so is the head.
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "4",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
}
NODE = {
    "num_cpus": 2,
    "node_ip_address": "127.0.0.1",
    "object_store_memory": 80_000_000,
    "include_dashboard": False,
}


def main():
    os.environ.update(ENVIRONMENT, RAY_TMPDIR=sys.argv[1])
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_gpus": 4})
    try:
        others = [cluster.add_node(**NODE)]
        print(cluster.address, flush=True)
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "remove":
                cluster.remove_node(others.pop(), allow_graceful=False)
            elif word == "add":  # a node with a folder in front of its PYTHONPATH, or without
                path = os.environ["PYTHONPATH"]
                os.environ["PYTHONPATH"] = f"{rest}:{path}" if rest else path
                others.append(cluster.add_node(**NODE))
                os.environ["PYTHONPATH"] = path
            elif word == "die":
                cluster.head_node.kill_gcs_server()
            print("done", flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
