r"""A Protobuf message type, from a generated class or from a FileDescriptorSet, as something that parses.

Invariant: a name and the bytes of a FileDescriptorSet are all that it is made from, in any process, with a pool of
its own: what else a program has registered does not matter.

>>> from google.protobuf.timestamp_pb2 import Timestamp
>>> kind = kind_of(*described(Timestamp))
>>> kind.arrays([kind.parse(b"\x08\x05")])["seconds"].to_pylist()
[5]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa

from tidegauge.errors.formats import FormatPackageMissing, InvalidMessageSchema
from tidegauge.sources.formats.infer import as_table
from tidegauge.sources.formats.protobuf.columns import Build, FieldShape, columns_of, respell, shapes_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.message import Message

__all__ = ["Kind", "described", "files_of", "kind_of"]

_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class Kind:
    """A message type that can be read: one by one with `parse` and `builds`, or together by its `shapes`.

    paths: the ways that a registry's frame may write the index of the type.
    """

    name: str
    columns: pa.Schema
    paths: tuple[bytes, ...]
    error: type[Exception]
    parse: Callable[[bytes], Any]
    builds: Mapping[str, Build]
    shapes: tuple[FieldShape, ...]

    def arrays(self, messages: Sequence[Any]) -> dict[str, Any]:
        """Return the columns of messages."""
        return {name: build(messages) for name, build in self.builds.items()}


def described(message: type[Message]) -> tuple[str, bytes]:
    """Return the full name of a generated class, and its files as a serialized FileDescriptorSet."""
    pb2 = _descriptors()
    found = getattr(message, "DESCRIPTOR", None)
    if found is None or not hasattr(found, "file"):
        raise InvalidMessageSchema(kind="Protobuf", detail=f"{message!r} is no generated class")
    files: dict[str, Any] = {}

    def add(file: FileDescriptor) -> None:
        if file.name not in files:
            for dependency in file.dependencies:
                add(dependency)
            files[file.name] = proto = pb2.FileDescriptorProto()
            file.CopyToProto(proto)

    add(found.file)
    return found.full_name, pb2.FileDescriptorSet(file=list(files.values())).SerializeToString(deterministic=True)


def files_of(descriptor: bytes) -> list[str]:
    """Return the names of the files in a FileDescriptorSet. Raises `InvalidMessageSchema`."""
    return [file.name for file in _files(descriptor)]


@lru_cache(maxsize=_KEPT)
def kind_of(name: str, descriptor: bytes) -> Kind:
    """Return the message type of a name. Raises `InvalidMessageSchema` and `SchemaWithoutColumns`."""
    pb2 = _descriptors()
    from google.protobuf import descriptor_pool, message, message_factory

    known = {file.name: file for file in _files(descriptor)}
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(file: str, above: tuple[str, ...]) -> None:
        if file in added:
            return
        if file in above:
            _invalid(f"the file {file!r} imports itself")
        if file not in known:
            known[file] = pb2.FileDescriptorProto()
            descriptor_pool.Default().FindFileByName(file).CopyToProto(known[file])
        for dependency in known[file].dependency:
            add(dependency, (*above, file))
        for each in known[file].message_type:
            respell(each)
        pool.AddSerializedFile(known[file].SerializeToString())
        added.add(file)

    try:
        for file in list(known):
            add(file, ())
        found = pool.FindMessageTypeByName(name)
    except KeyError as error:
        _invalid(f"{error.args[0]}")
    except (TypeError, RecursionError) as error:
        _invalid(str(error))
    fields = columns_of(found)
    columns = as_table(pa.schema(list(fields.types.items())), f"the Protobuf message {name}")
    made = message_factory.GetMessageClass(found)
    parse = _checked(made.FromString, message.DecodeError) if fields.required else made.FromString
    shapes = shapes_of(found, fields.types.values())
    return Kind(name, columns, _paths(found), message.DecodeError, parse, fields.builds, shapes)


def _descriptors() -> Any:
    try:
        from google.protobuf import descriptor_pb2
    except ImportError as error:
        raise FormatPackageMissing(format="Protobuf", package="protobuf", detail=str(error)) from None
    return descriptor_pb2


def _files(descriptor: bytes) -> Any:
    pb2 = _descriptors()
    from google.protobuf.message import DecodeError

    try:
        return pb2.FileDescriptorSet.FromString(descriptor).file
    except (DecodeError, TypeError) as error:
        _invalid(f"the descriptor is no FileDescriptorSet: {error}")


def _checked(parse: Callable[[bytes], Any], wrong: type[Exception]) -> Callable[[bytes], Any]:
    """Parse, and refuse what lacks a field that is required."""

    def parsed(value: bytes) -> Any:
        found = parse(value)
        if not found.IsInitialized():
            raise wrong(f"without the required {', '.join(found.FindInitializationErrors()[:3])}")
        return found

    return parsed


def _paths(found: Descriptor) -> tuple[bytes, ...]:
    path: list[int] = []
    at: Any = found
    while at is not None:
        around = at.containing_type
        siblings = around.nested_types if around is not None else at.file.message_types_by_name.values()
        path.insert(0, [sibling.full_name for sibling in siblings].index(at.full_name))
        at = around
    written = b"".join(map(_varint, [len(path), *path]))
    return (b"\0", written) if path == [0] else (written,)


def _varint(number: int) -> bytes:
    number <<= 1  # the sign is the last bit
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _invalid(detail: str) -> NoReturn:
    raise InvalidMessageSchema(kind="Protobuf", detail=detail) from None
