"""Tables of messages and enums, from Google's descriptors of them."""

KINDS = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32",
    8: "bool", 9: "string", 12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64",
    17: "sint32", 18: "sint64",
}  # fmt: skip
MESSAGE, ENUM = 11, 14


def described(roots, prefixes):
    """Return the tables that descriptors amount to, found from ``roots``."""
    messages, enums, todo = {}, {}, list(roots)

    def name_of(descriptor):
        name = descriptor.full_name
        for prefix, replacement in prefixes.items():
            if name.startswith(prefix):
                return replacement + name.removeprefix(prefix)
        return name

    def kind_of(field):
        if field.type == MESSAGE:
            todo.append(field.message_type)
            return name_of(field.message_type)
        if field.type == ENUM:
            values = field.enum_type.values
            enums[name_of(field.enum_type)] = {v.number: v.name for v in values}
            return name_of(field.enum_type)
        return KINDS[field.type]

    def is_repeated(field):
        repeated = getattr(field, "is_repeated", None)
        if repeated is None:
            return field.label == 3
        return repeated() if callable(repeated) else repeated

    while todo:
        message = todo.pop()
        if name_of(message) in messages:
            continue
        rows = messages[name_of(message)] = {}
        for field in message.fields:
            if field.type == MESSAGE and field.message_type.GetOptions().map_entry:
                key, value = (field.message_type.fields_by_number[n] for n in (1, 2))
                rows[field.number] = f"{field.name} map {kind_of(key)} {kind_of(value)}"
                continue
            row = f"{field.name} {kind_of(field)}{'*' if is_repeated(field) else ''}"
            oneof = field.containing_oneof
            rows[field.number] = f"{row} ({oneof.name})" if oneof is not None else row
    return messages, enums


def ours(module):
    plain = {
        name: {number: row.replace("~", "") for number, row in rows.items()}
        for name, rows in module.MESSAGES.items()
    }
    return plain, module.ENUMS


def compare(module, messages, enums):
    mine, my_enums = ours(module)
    assert mine == messages
    assert my_enums == enums
