"""What the theory promises: expected tokens a round, the best draft length, and what a costlier pass does to it."""

from sooner.plan.formulas import best_length, ceiling, expected_tokens, speedup

print("alpha   E(tokens), k=4   best k   speedup   ceiling      (draft step costs 0.1 of a pass)")
for alpha in (0.5, 0.6, 0.7, 0.8, 0.9):
    k = best_length(alpha, 0.1)
    print(f"{alpha:5.1f} {expected_tokens(alpha, 4):16.4f} {k:8d} {speedup(alpha, k, 0.1):9.2f} {ceiling(alpha):9.1f}")

flat, steep = [1.0] * 9, [1.0 + 0.45 * k for k in range(9)]
print("\nA lookup draft (free) at alpha 0.6, where a pass over k + 1 rows costs")
for name, costs in (("what one row costs", flat), ("0.45 of a pass more for each row", steep)):
    k = best_length(0.6, 0.0, 8, costs)
    print(f"  {name}: draft {k}, {speedup(0.6, k, 0.0, costs[k]):.2f}x")
