"""A conversational program: it asks for a number, doubles it in a separate playbook, and ends on request."""

from __future__ import annotations

DESK = """\
# Desk
Doubles numbers.

## Main() -> int
Doubles a number that the user gives.
### Triggers
- T1:BGN At the beginning
### Steps
- 01:EXE $count:int = 0
- 02:QUE Say(user, Ask for $number:int); YLD for user; done when the user gave a number
- 03:QUE $twice:int = Twice(number=$number)
- 04:YLD for call
- 05:EXE $count = $count + 1
- 06:QUE Say(user, Tell $twice and thank the user)
- 07:RET $twice

## Twice($number:int) -> int
### Steps
- 01:EXE $product:int = $number * 2
- 02:RET $product
"""

HEAD = "recap – it goes on\nplan – the next line\n"
ASK = f'{HEAD}`Step["Main:02:QUE"]` `Say("user", "Which number?")`\ntrig? no\nyld user\n'
AGAIN = f'{HEAD}`Step["Main:02:QUE"]` `Say("user", "That is none. Which?")`\ntrig? no\nyld user\n'
TAKE = (
    f'{HEAD}`Var[$number, 21]`\ntrig? no\n`Step["Main:03:QUE"]` `$twice = Twice(number=$number)`\ntrig? no\n'
    '`Step["Main:04:YLD"]` yld call\n'
)
THANK = (
    f'{HEAD}`Step["Main:06:QUE"]` `Say("user", "It is 42. Thanks!")`\ntrig? no\n'
    '`Step["Main:07:RET"]` `Return[$twice]` `Var[$__, "Doubled."]`\nyld return\n'
)
JUMP = f'{HEAD}`Step["Main:06:QUE"]` `Say("user", "Nobody may see this")`\ntrig? no\nyld user\n'
"""A reply that skips the lines in between."""
