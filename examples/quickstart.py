"""Answer a chat message plainly and speculatively, and see that nothing changed but the number of passes."""

from sooner import LLM, SamplingParams

llm = LLM("smollm2", draft="suffix")
messages = [{"role": "user", "content": "Write the numbers from one to twelve, one a line."}]
params = SamplingParams(temperature=0.8, seed=7, max_tokens=48)

plain = llm.chat(messages, params, speculative=False)
fast = llm.chat(messages, params)

print(fast.text)
assert fast.token_ids == plain.token_ids
print(f"{fast.stats.rounds} rounds instead of {plain.stats.rounds}, {fast.stats.tokens_per_round:.2f} tokens a round")
