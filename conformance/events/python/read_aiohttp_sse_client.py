"""aiohttp-sse-client: it comes again by itself, until it has failed too often in a row."""

import asyncio
import os
import sys
from datetime import timedelta

from aiohttp import ClientError
from aiohttp_sse_client import client


async def main():
    left, last_id = int(os.environ["COUNT"]), ""
    while left:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        try:
            pause = timedelta(milliseconds=200)
            async with client.EventSource(os.environ["URL"], reconnection_time=pause, headers=headers) as events:
                async for event in events:
                    last_id = event.last_event_id
                    print(event.data, flush=True)
                    left -= 1
                    if not left:
                        return
        except (ClientError, ConnectionError) as error:
            print(repr(error), file=sys.stderr)
            await asyncio.sleep(0.2)


asyncio.run(main())
