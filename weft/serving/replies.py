"""``Reply``: the text of one generation, up to a stop string."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from weft.generation.sampling import RandomStream
from weft.generation.stopping import Stopping
from weft.serving.catalogue import ServedText
from weft.serving.openai_request import TextRequest
from weft.serving.text_model import StopStrings, TextModel, TextStream
from weft.serving.text_scheduler import TextJob


class Reply:
    """A reply: its text part by part, or whole.

    ``finish_reason`` is ``None`` until the text has ended, then ``"length"`` or ``"stop"``.
    """

    def __init__(self, index: int, job: TextJob, model: TextModel, stop: Sequence[str]) -> None:
        self.index = index
        self.job = job
        self.finish_reason: str | None = None
        self.generated = 0
        self._model = model
        self._stop = StopStrings(stop)

    async def parts(self) -> AsyncIterator[str]:
        """The text, each part as soon as it is known; no part is empty."""
        stream = TextStream(self._model)
        async for token in self.job.tokens():
            self.generated += 1
            part = "" if token in self._model.end_tokens else self._stop.feed(stream.feed(token))
            if part:
                yield part
            if self._stop.found:
                self.job.cancel()
                break
        self.job.request.check()
        rest = self._stop.feed(stream.finish()) + self._stop.finish()
        if rest:
            yield rest
        ended = self.job.finish_reason == "length" and not self._stop.found
        self.finish_reason = "length" if ended else "stop"

    async def text(self) -> str:
        """The whole text."""
        return "".join([part async for part in self.parts()])


def begin_replies(served: ServedText, asked: TextRequest) -> list[Reply]:
    """Begin to generate all replies of a request, or none of them.

    Choice i of a request uses the random numbers of (seed, i), whatever runs beside it.
    """
    stopping = Stopping(max_new_tokens=asked.max_tokens,
                        stop_tokens=frozenset(served.model.end_tokens))
    prompts = [prompt for prompt in asked.prompts for _ in range(asked.choices)]
    served.scheduler.check_room(len(prompts))
    replies: list[Reply] = []
    try:
        for index, prompt in enumerate(prompts):
            job = served.scheduler.submit(prompt, sampling=asked.sampling, stopping=stopping,
                                          stream=RandomStream(asked.seed, index),
                                          constraint=asked.constraint)
            replies.append(Reply(index, job, served.model, asked.stop))
    except BaseException:
        for reply in replies:
            reply.job.cancel()
        raise
    return replies


def usage(replies: Sequence[Reply]) -> dict[str, int]:
    """The tokens that were read and generated, as OpenAI counts them."""
    prompts = sum(len(reply.job.request.prompt) for reply in replies)
    generated = sum(reply.generated for reply in replies)
    return {"prompt_tokens": prompts, "completion_tokens": generated,
            "total_tokens": prompts + generated}
