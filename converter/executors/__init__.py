"""Executors: they run jobs in this process, in crash-isolated children or on Ray. See `catalog`."""
