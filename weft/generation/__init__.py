"""Generation of text: sampling, stop conditions, continuous batching, beams, speculation."""

from weft.generation.beam import BeamSearch, beam_search
from weft.generation.generate import generate, stream
from weft.generation.request import Generation, Request
from weft.generation.sampling import Candidates, RandomStream, Sampling, candidates, choose_tokens
from weft.generation.session import Session
from weft.generation.speculative import Speculation
from weft.generation.stopping import Stopping

__all__ = ["BeamSearch", "Candidates", "Generation", "RandomStream", "Request", "Sampling",
           "Session", "Speculation", "Stopping", "beam_search", "candidates", "choose_tokens",
           "generate", "stream"]
