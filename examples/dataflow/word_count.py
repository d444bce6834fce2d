"""Word count: how often each word has come so far, on several workers that each know some of the words.

Lines arrive anywhere. Each word goes to the one worker that counts it; counts go on from time to time.
"""

from __future__ import annotations

from tidegauge.dataflow import Stream, Worker, execute, records

ROUNDS = ["the ebb and the flood", "the flood", "the sea"]


def word_count(lines: Stream[list[str]]) -> Stream[list[tuple[str, int]]]:
    """Return each word, as it comes, with how often it has come."""
    words = lines.map(records.flat_map(str.split))
    return words.exchange(records.route(str)).state_machine(dict, records.stateful(str, count))


def count(before: int | None, word: str) -> tuple[int, list[tuple[str, int]]]:
    """Return the new count of a word, and what to send of it."""
    now = (before or 0) + 1
    return now, [(word, now)]


def main() -> None:
    """Count the words of three rounds on two workers, which read the lines by turns."""

    def build(worker: Worker) -> list[tuple[int, str, int]]:
        counted: list[tuple[int, str, int]] = []
        with worker.dataflow("word count") as scope:
            feed, lines = scope.input("lines")
            word_count(lines).inspect(lambda stamp, batch: counted.extend((*stamp, *pair) for pair in batch))
        for time, line in enumerate(ROUNDS):
            feed.advance_to(time)
            if time % worker.peers == worker.index:
                feed.send([line])
        feed.close()
        return counted

    for number, counted in enumerate(execute(build, peers=2)):
        for time, word, times in sorted(counted):
            print(f"worker {number}, time {time}: {word} {times}")


if __name__ == "__main__":
    main()
