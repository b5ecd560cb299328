"""Channels of gRPC in processes that fork."""

import os


def keep_out_of_forks() -> None:
    """Keep gRPC from starting its threads in forked children, where it aborts some of them.

    Spark's JVM is started by such a fork. It counts before the first channel of a process is opened.
    """
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
