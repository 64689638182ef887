"""A drafter of your own: always guesses that the last token comes again. Wrong most of the time, harmless always."""

from collections.abc import Sequence

from sooner import LLM, SamplingParams
from sooner.draft.protocol import Ask, Target
from sooner.testing import check_drafter
from sooner.types import Draft, Ledger


class EchoDrafter:
    name = "echo"
    samples = False

    def __init__(self, target: Target) -> None:
        self.vocabulary = target.vocabulary

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [Draft.chain([ask.ledger.tokens[-1]] * ask.limit) for ask in asks]

    def commit(self, key: int, ledger: Ledger) -> None:
        """Nothing is cached, so nothing has to be cut back."""

    def cached(self, key: int) -> int:
        return 0

    def forget(self, key: int) -> None:
        """Nothing is remembered."""


if __name__ == "__main__":
    check_drafter(EchoDrafter)
    llm = LLM("smollm2", draft="examples.own_drafter:EchoDrafter", draft_tokens=2)
    output = llm.chat([{"role": "user", "content": "Say aaaaaaaaaa."}], SamplingParams(temperature=0, max_tokens=24))
    print(output.text, output.stats.acceptance_by_position)
