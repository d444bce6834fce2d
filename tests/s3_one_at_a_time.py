"""moto as a server that takes one request at a time: by itself it lets two conditional puts of one object through.

Run by the Python of moto's own environment, with a port; `tests.s3` starts it.
"""

import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # type: ignore[import-not-found]
from werkzeug.serving import run_simple  # type: ignore[import-not-found]

app = DomainDispatcherApplication(create_backend_app)
one_at_a_time = threading.Lock()


def served(environ, start_response):  # type: ignore[no-untyped-def]
    with one_at_a_time:
        return app(environ, start_response)


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), served, threaded=True)
