"""Writers: one module a target."""
