"""TG-084x: formats of messages that have a schema, and the registry that keeps schemas."""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError, Transient

__all__ = [
    "FormatPackageMissing",
    "InvalidMessageSchema",
    "NamesAlike",
    "RegistryFailed",
    "RegistryUnreachable",
    "SchemaWithoutColumns",
    "UnknownSchemaId",
]


class SchemaWithoutColumns(TidegaugeError):
    """A schema with a part that no column can hold."""

    code = "TG-0840"
    what = "{path} of the {kind} schema cannot be a column: {detail}"
    cause = "a table's column has one type, and its depth is known"
    remedy = (
        "leave that part out of the schema that is read, or read the messages with tg.Raw() and decode them yourself"
    )


class InvalidMessageSchema(TidegaugeError):
    """A schema that is not valid."""

    code = "TG-0841"
    what = "the {kind} schema is not valid: {detail}"
    cause = "a schema of another kind, or one that was cut or edited by hand"
    remedy = (
        "pass an Avro schema as an .avsc file has it; of Protobuf the class that protoc generates, or a message's "
        "name and the bytes that protoc --include_imports --descriptor_set_out=FILE writes"
    )


class FormatPackageMissing(TidegaugeError):
    """A package that a format needs is not installed."""

    code = "TG-0842"
    what = "the format {format} needs the Python package {package!r}, which cannot be imported: {detail}"
    cause = "the package is an extra, and it has to be installed where the tasks run, too"
    remedy = "pip install 'tidegauge[kafka]'"


class RegistryUnreachable(Transient):
    """The schema registry does not answer."""

    code = "TG-0843"
    what = "the schema registry {url} does not answer: {detail}"
    cause = "the registry is down, or the address is wrong, or a firewall is in between"
    remedy = "check the address; the source goes on by itself when the registry answers"


class RegistryFailed(Transient):
    """The schema registry's answer is not a schema."""

    code = "TG-0844"
    what = "the schema registry {url} answered {answer} when it was asked for {asked}"
    cause = "another service at this address, credentials that it refuses, or an error of its own"
    remedy = "check the address and the credentials; the source goes on by itself when the registry gives schemas"


class UnknownSchemaId(TidegaugeError):
    """A message names a schema that the registry does not have."""

    code = "TG-0845"
    what = "the schema registry {url} has no schema {id}"
    cause = "the message was written with another registry, or the schema was deleted for good"
    remedy = "register the schema under this id again, or collect such records with the source's errors stream"


class NamesAlike(TidegaugeError):
    """Two columns that a table cannot tell apart."""

    code = "TG-0846"
    what = "{where} has two columns whose names are alike, {first!r} and {second!r}"
    cause = "tables do not distinguish upper from lower case in names, and have each name once"
    remedy = (
        "declare the columns, or a schema that gives one of them another name; or read the messages with tg.Raw()"
    )
