"""Who runs jobs: this process, crash-isolated children, Ray. `catalog` has the table."""
