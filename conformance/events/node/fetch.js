// fetch, as an option of packages that take one. It says why there is no stream, and gives up an answer that does not come: Node's own
// never settles where a connection ends between its beginning and the request (undici 6.24), as one does that a gateway has
// accepted when it is killed. A program that waits for nothing else then ends without a word.

const ANSWER_MS_MAX = 10_000;

exports.fetch = async (url, init) => {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(new Error("not in time")), ANSWER_MS_MAX);
  try {
    const signal = AbortSignal.any([init.signal, late.signal]);
    const response = await fetch(url, { ...init, signal });
    if (response.status !== 200) {
      console.error(`status ${response.status}: ${await response.clone().text()}`);
    }
    return response;
  } catch (error) {
    console.error(`no answer: ${error.cause ?? error}`);
    throw error;
  } finally {
    clearTimeout(timer);
  }
};
