"""Attacks: what malicious clients do to their rows, their updates or their claims, each with its source.

| the attack uses       | attacks                                                           | where it runs         |
| --------------------- | ----------------------------------------------------------------- | --------------------- |
| the attacker's rows   | `LabelFlip`, `Backdoor`                                           | `tasks/attackers.py`  |
| the attacker's answer | `SignFlip`, `Sleeper`, `ScaledUpdate`, `Gauss`, `FreeRider`, `Liar` | the client          |
| the round's updates   | `LittleIsEnough`, `InnerProduct`, `Mimic`, `MinMax`, `Eraser`     | `collect/attacked.py` |
| the server's rule     | `OptimalALIE`, `OptimalIPM`, `RuleAware`, `SplitTrigger`, `PooledBackdoor` | the same     |

A recipe never learns which clients attack: that needs the configuration and the seed (`draw_attackers`).
"""
