"""TG-0803 to TG-083x: Kafka."""

from __future__ import annotations

from tidegauge.errors.base import Definite, TidegaugeError, Transient

__all__ = [
    "BrokerForbids",
    "BrokerRefusesUs",
    "BrokerTooOld",
    "BrokerUnreachable",
    "ConnectorMissing",
    "HeaderUnreadable",
    "KafkaFailed",
    "KafkaMissing",
    "KeyAndValueClash",
    "MessageTimeUnfit",
    "MessageTooLarge",
    "NoTopicMatches",
    "NothingToInfer",
    "SettingInvalid",
    "SettingNotShared",
    "SettingTaken",
    "TopicDeleted",
    "TopicRecreated",
    "TopicUnknown",
]


class KafkaMissing(TidegaugeError):
    """The Kafka client is not installed."""

    code = "TG-0803"
    what = "Kafka needs the Python package {package!r}, which cannot be imported: {detail}"
    cause = "the Kafka client is an extra, and it has to be installed where the tasks run, too"
    remedy = "pip install 'tidegauge[kafka]'"


class SettingTaken(TidegaugeError):
    """A setting of the Kafka client that users may not change."""

    code = "TG-0804"
    what = "the setting {setting!r} cannot be passed on to the Kafka client: {why}"
    cause = "it is derived from the flow, or another value would break the guarantees"
    remedy = "leave it out"


class SettingInvalid(Transient):
    """A setting that the Kafka client does not know or accept."""

    code = "TG-0805"
    what = "the Kafka client does not take its settings: {detail}"
    cause = "a misspelt setting, a value out of its range, or a missing file"
    remedy = "correct 'settings'; librdkafka's CONFIGURATION.md lists the names"


class BrokerUnreachable(Transient):
    """No broker answers."""

    code = "TG-0806"
    patient = True
    what = "no Kafka broker answers at {servers}: {detail}"
    cause = (
        "a wrong address or port, a broker that is down, the network in between, a broker that speaks SSL where we "
        "do not, or one before Kafka 0.10"
    )
    remedy = "check the address, and 'security.protocol' in 'settings'; a running flow tries again by itself"


class BrokerRefusesUs(Transient):
    """The broker refuses the login: a wrong user or password, or a certificate."""

    code = "TG-0807"
    patient = True
    what = "the Kafka broker at {servers} does not let us in: {detail}"
    cause = "a wrong user name, password or mechanism, or a certificate that one side does not trust"
    remedy = "check the sasl.* and ssl.* settings, and their references; a running flow tries again by itself"


class BrokerForbids(Transient):
    """The broker accepted the login, but does not allow the request."""

    code = "TG-0808"
    patient = True
    what = "the Kafka broker at {servers} does not allow us to {doing}: {detail}"
    cause = "the user of this connection lacks a permission (an ACL)"
    remedy = (
        "allow that; a source needs READ and DESCRIBE on its topics and READ on its group, a sink WRITE and DESCRIBE "
        "on its topic and its progress topic and on its transactional id; a running flow tries again by itself"
    )


class TopicUnknown(Transient):
    """A topic that does not exist, and was never bound."""

    code = "TG-0809"
    patient = True
    what = "the Kafka broker at {servers} has no topic {topics}"
    cause = "a misspelt name, another cluster, a topic that is not created yet, or one that we may not see"
    remedy = "create it, or correct the name; the flow looks for it again by itself"


class NoTopicMatches(Transient):
    """A pattern that matches no topic's name."""

    code = "TG-0810"
    what = "none of the {count} topics that we can see at {servers} has a name that matches {pattern!r}"
    cause = "the pattern has to match a whole name, from its first to its last character; or no topic exists yet"
    remedy = "correct the pattern, as in tg.Topics(pattern='orders\\\\..*'); the flow looks again by itself"


class TopicDeleted(Definite):
    """A topic with bound records that does not exist any more."""

    code = "TG-0811"
    what = "the topic {topics} of source {source!r} was deleted; the broker at {servers} says that there is none"
    cause = "somebody deleted it"
    remedy = (
        "published epochs stay readable. When there is one again, 'tidegauge resume FLOW {source}' lets the source "
        "look at it; it then tells you whether it is a new one"
    )


class TopicRecreated(Definite):
    """Some of a source's topics were recreated, and others were not."""

    code = "TG-0813"
    what = (
        "of the topics of source {source!r}, {topics} are not those that are bound (they were recreated), and "
        "{others} still are"
    )
    cause = "they were deleted and created again, or lost records that we had read"
    remedy = (
        "a new incarnation covers the whole source, and would read the others twice: read the recreated topics with "
        "a source of their own and take them out of this one, then tidegauge resume FLOW {source}"
    )


class MessageTooLarge(Transient):
    """A message larger than a client may fetch."""

    code = "TG-0814"
    what = "a message of {partition} at or after offset {offset} is larger than a client may fetch at once: {detail}"
    cause = "the topic's max.message.bytes is larger than 'receive.message.max.bytes' in 'settings'"
    remedy = "raise 'receive.message.max.bytes' in 'settings' above the largest message; no message is skipped"


class BrokerTooOld(Transient):
    """A broker that does not know a request."""

    code = "TG-0815"
    what = "the Kafka broker at {servers} is too old to {doing}: {detail}"
    cause = "a broker before 0.11, by its own list of the requests that it knows"
    remedy = "upgrade the broker"


class KafkaFailed(Transient):
    """An error of Kafka without a class of its own."""

    code = "TG-0816"
    patient = True
    what = "Kafka at {servers} failed to {doing}: {detail}"
    cause = "a broker that is starting, stopping or overloaded"
    remedy = "a running flow tries again by itself; if the error stays, look into the broker's log"


class NothingToInfer(Transient):
    """No message from which columns can be inferred."""

    code = "TG-0818"
    what = "no columns can be inferred from {topics}: no message shows any"
    cause = "empty topics, or messages of another format"
    remedy = "declare the columns in the format, like format=Json('id long, user string'), or produce a message"


class KeyAndValueClash(Transient):
    """A column that the key and the value both have."""

    code = "TG-0819"
    what = "the key and the value of the messages of {topics} both have columns named {columns}"
    cause = "a table has each name once, in upper or lower case; undeclared columns come from the messages"
    remedy = (
        "declare in key= or in format= columns that the other one does not have, like key=Json('order_id long'); or "
        "leave out key= and read the raw key with metadata=True, as the column _key"
    )


class MessageTimeUnfit(Definite):
    """A message whose timestamp is not an instant, in a source with `metadata=True`."""

    code = "TG-0820"
    what = (
        "the message at offset {offset} of {partition} has the timestamp {milliseconds}, which is no instant to 9999"
    )
    cause = "a producer that mistook microseconds or nanoseconds for milliseconds since 1970, or a negative number"
    remedy = (
        "write the source's errors stream to an output of its own, which collects such messages (with reader='spark' "
        "leave that out, too); or leave out metadata=True, which alone needs the time"
    )


class HeaderUnreadable(Definite):
    """A message with a header whose name is not text, in a source with `metadata=True`."""

    code = "TG-0821"
    what = "the message at offset {offset} of {partition} has headers that cannot be shown: {detail}"
    cause = "a producer that uses arbitrary bytes as the name of a header"
    remedy = (
        "write the source's errors stream to an output of its own, which collects such messages; or leave out "
        "metadata=True, which alone needs the headers"
    )


class ConnectorMissing(TidegaugeError):
    """Spark's own Kafka connector was requested, and the session does not have it."""

    code = "TG-0830"
    what = "the source {source!r} is to be read by Spark's own Kafka connector, which this session does not have"
    cause = "the connector is not part of Spark; it has to be on the class path before a session starts"
    remedy = "start the session with spark.jars.packages={packages}, or leave out reader='spark', which needs no JAR"


class SettingNotShared(TidegaugeError):
    """A setting that reader='spark' cannot pass to Kafka's Java client."""

    code = "TG-0831"
    what = "the setting {setting!r} cannot be passed on with reader='spark': {why}"
    cause = "Spark's connector uses Kafka's Java client, and settings are librdkafka's"
    remedy = "leave the setting out, or leave out reader='spark'"
