"""The operators that every dataflow needs, each built on the operator builder.

input              batches and progress from outside, or out of an iterable
generic            one by one: map, filter, inspect, concatenate; source, unary, binary and sink for your own
stash              work that waits for its time; aggregate, state machine
routing            partition, exchange, broadcast
feedback           loops, and flow control
capture            a stream as a queue of events, and back
"""
