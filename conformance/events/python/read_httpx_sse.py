"""httpx-sse: it reads one answer; who uses it comes again with the last id, as its documentation says."""

import os
import sys
import time

import httpx
from httpx_sse import connect_sse

left, last_id = int(os.environ["COUNT"]), ""
with httpx.Client(timeout=30) as client:
    while left:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        try:
            with connect_sse(client, "GET", os.environ["URL"], headers=headers) as events:
                if events.response.status_code != 200:
                    print(events.response.status_code, events.response.read(), file=sys.stderr)
                for event in events.iter_sse():
                    last_id = event.id
                    if event.data:
                        print(event.data, flush=True)
                        left -= 1
                    if not left:
                        break
        except httpx.TransportError as error:
            print(repr(error), file=sys.stderr)
        time.sleep(0.2)
