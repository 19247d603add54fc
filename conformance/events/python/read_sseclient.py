"""sseclient: it comes again by itself, and raises what a gateway that is away makes of that."""

import os
import sys
import time

import requests
from sseclient import SSEClient

left = int(os.environ["COUNT"])
events, last_id = None, None
while left:
    try:
        if events is None:
            events = SSEClient(os.environ["URL"], last_id=last_id, retry=200)
        message = next(events)
    except (requests.RequestException, OSError) as error:
        response = getattr(error, "response", None)
        print(error, response.text if response is not None else "", file=sys.stderr)
        last_id = events.last_id if events is not None else last_id
        events = None
        time.sleep(0.2)
        continue
    # It hands out blocks that have an id and no data, which by the standard fire nothing.
    if message.event == "message" and message.data:
        print(message.data, flush=True)
        left -= 1
