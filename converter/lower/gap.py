"""What stops a lowering: one exception, of which all of a model's are collected."""


class Gap(Exception):  # noqa: N818 - it is collected, with others, into one error
    """Something that the source asks for and that we do not do."""
