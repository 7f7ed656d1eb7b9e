"""Python functions that models carry as bytecode, decoded as data; nothing runs."""
