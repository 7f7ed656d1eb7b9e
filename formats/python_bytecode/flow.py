"""Meanings of the instructions that move stack values, jump, loop, enter and leave blocks.

Ways that only an exception takes are never followed: a ``with`` is the calls that it makes where
nothing is raised, and `refuse_handlers` names the functions that catch something.

Spec: Python/ceval.c of each version, and from 3.12 on Python/bytecodes.c
https://github.com/python/cpython/blob/v3.14.0/Python/bytecodes.c
"""

from functools import partial

from formats.errors import UnsupportedError
from formats.python_bytecode.instructions import Disassembled, MisfitError
from formats.python_bytecode.stack import EMPTY, Block, Stack, means
from formats.python_bytecode.variables import load_constant

_SPECIAL = ("__enter__", "__exit__")


def refuse_handlers(code: Disassembled, name: str) -> None:
    """Raise an error about a function that catches exceptions (from 3.11 on).

    What is handled in a ``with``, a comprehension or a generator only cleans up.
    """
    for at in code.handlers:
        first, *more = (one.name for one in code.instructions[at : at + 2])
        if first == "PUSH_EXC_INFO" and more != ["WITH_EXCEPT_START"]:
            raise UnsupportedError(
                f"not supported: try in a Python function ({name})", gaps=(("Python's try", 1),)
            )


# On the stack


@means("POP_ITER")
def pop_iterator(stack: Stack, number: int) -> None:
    """Pop an iterator, from 3.15 on with the place above it."""
    if stack.version >= (3, 15):
        pop(stack, number)
    pop(stack, number)


@means("POP_TOP")
def pop(stack: Stack, number: int) -> None:
    """Pop."""
    del number
    if not stack.is_empty(stack.pop()):
        stack.emit("pop")


def _rotate(stack: Stack, number: int) -> None:
    if number < 2 or stack.logical(min(number, len(stack.slots) + 1)) != number:
        raise MisfitError("moves an empty place about")
    stack.slots.insert(len(stack.slots) - number, stack.slots[-1])
    stack.slots.pop()
    stack.emit("rotate", number)


means("ROT_N")(_rotate)
means("ROT_TWO")(lambda stack, _: _rotate(stack, 2))
means("ROT_THREE")(lambda stack, _: _rotate(stack, 3))
means("ROT_FOUR")(lambda stack, _: _rotate(stack, 4))


@means("COPY")
def copy(stack: Stack, number: int) -> None:
    """Push a copy of a place."""
    logical = stack.logical(number)
    if isinstance(stack.slots[-number], str):
        raise MisfitError("copies a variable that was set aside")
    stack.push(stack.slots[-number])
    stack.emit("copy", logical)


def _copy_all(stack: Stack, number: int) -> None:
    if not 1 <= number <= 5:
        raise MisfitError("copies more than five places")
    for _ in range(number):
        copy(stack, number)


means("DUP_TOP")(lambda stack, _: _copy_all(stack, 1))
means("DUP_TOP_TWO")(lambda stack, _: _copy_all(stack, 2))
means("DUP_TOPX")(_copy_all)


@means("SWAP")
def swap(stack: Stack, number: int) -> None:
    """Exchange the top with a place; where that is empty, a value only moves past others."""
    if not 2 <= number <= len(stack.slots):
        raise MisfitError("reaches for what is not on the stack")
    slots = stack.slots
    top, other = stack.is_empty(slots[-1]), stack.is_empty(slots[-number])
    between = sum(not stack.is_empty(slot) for slot in slots[-number + 1 : -1])
    if not top and not other:
        stack.emit("swap", between + 2)
    elif not top and between:
        stack.emit("rotate", between + 1)
    elif not other and between:
        raise MisfitError("moves an empty place about")
    slots[-1], slots[-number] = slots[-number], slots[-1]


# Jumps


def _jump_if(stack: Stack, number: int, *, truth: bool) -> None:
    del number
    stack.values(1)
    stack.emit("jump if", (truth, False), stack.target())


def _jump_or_pop(stack: Stack, number: int, *, truth: bool) -> None:
    del number
    stack.logical(1)
    stack.emit("jump if", (truth, True), stack.target())
    stack.pop()


def _jump_if_none(stack: Stack, number: int, *, none: bool) -> None:
    del number
    stack.values(1)
    stack.emit("jump if none", none, stack.target())


for _way in ("", "FORWARD_", "BACKWARD_"):
    means(f"POP_JUMP_{_way}IF_TRUE")(partial(_jump_if, truth=True))
    means(f"POP_JUMP_{_way}IF_FALSE")(partial(_jump_if, truth=False))
    means(f"POP_JUMP_{_way}IF_NONE")(partial(_jump_if_none, none=True))
    means(f"POP_JUMP_{_way}IF_NOT_NONE")(partial(_jump_if_none, none=False))
means("JUMP_IF_TRUE_OR_POP")(partial(_jump_or_pop, truth=True))
means("JUMP_IF_FALSE_OR_POP")(partial(_jump_or_pop, truth=False))


@means("JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD")
def jump(stack: Stack, number: int) -> None:
    """Jump."""
    del number
    stack.emit("jump", None, stack.target())
    stack.falls = False


@means("GET_ITER")
def iterate(stack: Stack, number: int) -> None:
    """Replace the top by its iterator; from 3.15 on a place above it is for counting."""
    if number:
        raise UnsupportedError("not supported: yield from or await in a Python function")
    stack.values(1)
    stack.emit("iterator")
    stack.push()
    if stack.version >= (3, 15):
        stack.push(EMPTY)


@means("FOR_ITER")
def next_element(stack: Stack, number: int) -> None:
    """Push the next element, or pop the iterator and jump."""
    del number
    if stack.version >= (3, 15) and not stack.is_empty(stack.pop()):
        raise MisfitError("goes through what is no iterator")
    stack.values(1)
    stack.emit("next", None, stack.target())
    stack.push()
    if stack.version >= (3, 15):
        stack.push(EMPTY)
    stack.push()


# Blocks, before 3.11


@means("SETUP_LOOP")
def set_up_loop(stack: Stack, number: int) -> None:
    """Open a loop."""
    del number
    stack.blocks = (*stack.blocks, Block("loop", stack.target(), len(stack.slots)))


@means("POP_BLOCK")
def pop_block(stack: Stack, number: int) -> None:
    """Close what was opened last."""
    del number
    if not stack.blocks:
        raise MisfitError("closes what is not open")
    last = stack.blocks[-1]
    if last.kind == "loop" and len(stack.slots) != last.depth:
        raise MisfitError("leaves something of a loop on the stack")
    stack.blocks = stack.blocks[:-1]


def _leave(stack: Stack, blocks: tuple[Block, ...]) -> None:
    """Leave open blocks, the inmost last: call the exits of ``with``, and pop what is theirs."""
    for block in reversed(blocks):
        while len(stack.slots) > block.depth + (block.kind == "with"):
            pop(stack, 0)
        if block.kind == "with":
            _exit(stack, 1)
            pop(stack, 0)


def _exit(stack: Stack, number: int) -> None:
    """Call a copy of a ``with``'s exit, and forget the result."""
    stack.emit("copy", stack.logical(number))
    for _ in range(3):
        stack.emit("constant", None)
    stack.emit("call", (3, ()))
    stack.emit("pop")


@means("BREAK_LOOP")
def break_loop(stack: Stack, number: int) -> None:
    """Leave the inmost loop."""
    del number
    inmost = _inmost_loop(stack)
    _leave(stack, stack.blocks[inmost:])
    block = stack.blocks[inmost]
    stack.blocks = stack.blocks[:inmost]
    stack.emit("jump", None, block.after)
    stack.falls = False


@means("CONTINUE_LOOP")
def continue_loop(stack: Stack, number: int) -> None:
    """Go to the beginning of the inmost loop, out of a ``with`` inside it."""
    inmost = _inmost_loop(stack)
    _leave(stack, stack.blocks[inmost + 1 :])
    stack.blocks = stack.blocks[: inmost + 1]
    jump(stack, number)


def _inmost_loop(stack: Stack) -> int:
    for at in range(len(stack.blocks) - 1, -1, -1):
        if stack.blocks[at].kind == "loop":
            return at
    raise MisfitError("leaves a loop where none is")


@means("SETUP_WITH")
def set_up_with(stack: Stack, number: int) -> None:
    """Enter a ``with``, and open its block."""
    del number
    block = Block("with", stack.target(), len(stack.slots) - 1)
    enter(stack, 0)
    stack.blocks = (*stack.blocks, block)


@means("BEFORE_WITH")
def enter(stack: Stack, number: int) -> None:
    """Replace a context manager by its exit, and push what entering it gives."""
    del number
    stack.values(1)
    stack.emit("copy", 1)
    stack.emit("attribute", "__exit__")
    stack.emit("swap", 2)
    stack.emit("attribute", "__enter__")
    stack.emit("call", (0, ()))
    stack.push()
    stack.push()


@means("LOAD_SPECIAL")
def load_special(stack: Stack, number: int) -> None:
    """Replace the top by its enter or exit, and leave the place of its first argument empty."""
    stack.values(1)
    stack.emit("attribute", stack.operand(_SPECIAL, number))
    stack.push()
    stack.push(EMPTY)


@means("BEGIN_FINALLY")
def begin_finally(stack: Stack, number: int) -> None:
    """Push that nothing was raised."""
    del number
    stack.emit("constant", None)
    stack.push()


@means("WITH_CLEANUP_START", "WITH_CLEANUP")
def leave_with(stack: Stack, number: int) -> None:
    """Call the exit below the note that nothing was raised, which stays."""
    del number
    stack.values(2)
    stack.emit("swap", 2)
    for _ in range(3):
        stack.emit("constant", None)
    stack.emit("call", (3, ()))
    stack.push()
    if stack.version < (3, 5):  # in one instruction
        stack.emit("pop")
    else:
        stack.push(EMPTY)
        stack.push()


@means("WITH_CLEANUP_FINISH")
def forget_exit(stack: Stack, number: int) -> None:
    """Pop what the exit gave."""
    pop(stack, number)
    if not stack.is_empty(stack.pop()):
        raise MisfitError("leaves what it has not entered")


@means("END_FINALLY")
def end_finally(stack: Stack, number: int) -> None:
    """Pop the note that nothing was raised."""
    del number
    stack.values(1)
    stack.emit("pop")


@means("POP_FINALLY")
def pop_finally(stack: Stack, number: int) -> None:
    """Pop the note that nothing was raised, maybe from below a result."""
    if number:
        _rotate(stack, 2)
    end_finally(stack, 0)


# Ends


@means("RETURN_VALUE")
def return_value(stack: Stack, number: int) -> None:
    """Return the top; before 3.8, out of whatever is open."""
    del number
    stack.logical(1)
    if stack.version < (3, 8):
        if len(stack.slots) - 1 > len(stack.blocks):
            raise MisfitError("leaves something on the stack")
        for block in reversed(stack.blocks):
            if block.kind == "with":
                _exit(stack, len(stack.slots) - block.depth)
    elif len(stack.slots) > 1:
        raise MisfitError("leaves something on the stack")
    stack.pop()
    stack.emit("return")
    stack.falls = False


@means("RETURN_CONST")
def return_constant(stack: Stack, number: int) -> None:
    """Return a constant."""
    load_constant(stack, number)
    return_value(stack, 0)


@means("RAISE_VARARGS")
def raise_error(stack: Stack, number: int) -> None:
    """Raise."""
    stack.values(number)
    stack.emit("raise", number)
    stack.falls = False


@means("RETURN_GENERATOR")
def make_generator(stack: Stack, number: int) -> None:
    """Begin as a generator: what is sent to it first is on the stack, and nothing to a step."""
    del number
    stack.push(EMPTY)


@means("GEN_START")
def start_generator(stack: Stack, number: int) -> None:
    """Pop what is sent to a generator first (3.10)."""
    del number
    if not stack.is_empty(stack.pop()):
        raise MisfitError("begins as a generator in its middle")


@means("YIELD_VALUE")
def yield_value(stack: Stack, number: int) -> None:
    """Yield the top, and go on with what is sent."""
    del number
    stack.values(1)
    stack.emit("yield")
    stack.push()
