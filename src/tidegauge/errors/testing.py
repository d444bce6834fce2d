"""Errors of the kit for tests: a Kafka broker that cannot be had, or does not do what it was told; a connector that
breaks its laws, or that cannot be checked; a strategy that cannot be made."""

from __future__ import annotations

from tidegauge.errors.base import TidegaugeError

__all__ = [
    "BenchNotMade",
    "BrokerDidNotStart",
    "BrokerNotRunning",
    "HypothesisMissing",
    "InvalidStrategy",
    "JarsNotFetched",
    "KafkaToolFailed",
    "LawsBroken",
    "NoStrategyKnown",
    "TopicNotReady",
    "WrongJar",
]


class BrokerDidNotStart(TidegaugeError):
    """The Kafka broker for tests ended or did not answer in time."""

    code = "TG-0880"
    what = "the Kafka broker at {servers} {how}; the end of its log:\n{log}"
    cause = (
        "a setting that Kafka does not take, a port or a disk that is not available, or a machine that is too busy"
    )
    remedy = "correct the problem that the log names; on a slow machine KafkaBroker(within=...) waits longer"


class JarsNotFetched(TidegaugeError):
    """Kafka's programs, or Spark's connector, could not be fetched."""

    code = "TG-0881"
    what = "JARs could not be fetched from {mirror} into {folder}: {detail}"
    cause = "no internet access from here, a proxy that Java does not know of, or a folder that cannot be written"
    remedy = (
        "set HTTPS_PROXY to the proxy or TIDEGAUGE_MAVEN to a mirror of Maven Central; without a network copy the "
        "folder from a machine that has it, or set TIDEGAUGE_CACHE to the folder above a copy"
    )


class WrongJar(TidegaugeError):
    """A JAR is not the pinned one."""

    code = "TG-0882"
    what = "{jar} from {origin} is not the one that was published: its SHA-256 is {found}, it should be {wanted}"
    cause = "a copy that was cut short, or a mirror or a cache folder that someone tampered with"
    remedy = "find out what writes there; then delete the file, or name another mirror, and it is fetched again"


class KafkaToolFailed(TidegaugeError):
    """One of Kafka's command-line tools failed."""

    code = "TG-0883"
    what = "{tool} {arguments} ended with {status}: {output}"
    cause = "an argument that the tool does not take, or a broker that is not running"
    remedy = "correct the arguments; --help shows what the tool takes"


class BrokerNotRunning(TidegaugeError):
    """The test kit's Kafka broker was given an order that needs a running one."""

    code = "TG-0884"
    what = "the Kafka broker at {servers} is not running; it was told to {what}"
    cause = "it was stopped or killed before, or it ended by itself"
    remedy = "start it first"


class TopicNotReady(TidegaugeError):
    """A topic for a test did not become writable in time."""

    code = "TG-0885"
    what = "the topic {topic!r} could not be made ready: {detail}"
    cause = "a topic of that name exists already, a setting that Kafka does not take, or a broker that is stopped"
    remedy = "give each test a topic name of its own, and start or resume the broker before"


class LawsBroken(TidegaugeError):
    """`ConnectorReport.require` on a connector that breaks a law."""

    code = "TG-0900"
    what = "{connector} breaks the laws {laws}\n{report}"
    cause = "a bug in the connector, or in the bench that the check was given"
    remedy = "the report has an example for each broken law, and says what to do"


class BenchNotMade(TidegaugeError):
    """`check_source` or `check_sink` was not given a bench."""

    code = "TG-0901"
    what = "there is no bench to check a {kind} on: {problem}"
    cause = "the function that was given takes no folder, fails, or returns something else"
    remedy = (
        "give a function that takes an empty folder and returns a bench of its own each time; "
        "docs/reference/testing.md says what a bench has"
    )


class HypothesisMissing(TidegaugeError):
    """The strategies were imported, and Hypothesis is not installed."""

    code = "TG-0940"
    what = "tidegauge.testing.strategies needs the Python package 'hypothesis', which cannot be imported: {detail}"
    cause = "the package is an extra, for tests alone"
    remedy = "pip install 'tidegauge[testing]'"


class InvalidStrategy(TidegaugeError):
    """A strategy was asked for with an argument that it cannot have."""

    code = "TG-0941"
    what = "{strategy}: {parameter} is {value}, expected {expected}"
    cause = "a wrong value, a wrong type, or bounds that leave nothing between them"
    remedy = "correct the argument"


class NoStrategyKnown(TidegaugeError):
    """A strategy was asked for the values of something that it does not know."""

    code = "TG-0942"
    what = "{strategy} knows no values of {thing}"
    cause = "it is your own, or of a kind that no flow carries; only those that come with Tidegauge are known"
    remedy = "{instead}"
