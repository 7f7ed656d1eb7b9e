"""Graphs of torch programs that torch itself exports, in a child process."""
