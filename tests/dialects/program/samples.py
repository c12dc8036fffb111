"""Sample programs for the parser tests, and helpers that return their problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cuebook.dialects.findings import Problem
from cuebook.dialects.program.parse import read
from cuebook.kernel.errors import NotFound

DESK = '''\
#!/usr/bin/env cuebook
<!-- Compiled. # NoAgent -->
---
title: The seed desk
version: 0.2
---

# SeedDesk
metadata:
  author: Ana
  model: small
---
Sells seeds.
Answers in short words.

```python
import math

@playbook(triggers=["T1:CND When a price is needed"], public=True, rate=2)
async def Price(grams: float, kind: str = "pea", *, tax: float = 0.1) -> float:
    """Works out a price.

    In euros.
    """
    return math.ceil(grams) * (1 + tax)

def helper():
    return "# not a heading"
```

## Main($name: str, $count: int = 3) -> None
metadata:
  meeting: false
---
Greets and sells.

### Triggers
- T1:BGN At the beginning
- T2:EVT When the user asks for seeds

### Steps
- 01:QUE Say(user, Ask user for $kind:str); YLD for user; done when a kind is known
- 02:CND While $kind is unknown
  - 02.01:EXE $tries:int = $tries + 1
  - 02.02:JMP 02
- 3:QUE $price:float = Price(grams=10)
- 04:YLD for call
- 05:CHK N1
- 06:RET $price

### Notes
- N1 Prices are in euros.

## Sort($beds: List[str] = ["a, b", "c"]) -> list
metadata:
  execution_mode: react
---
Sort the beds {$beds}.

## Rhyme() -> str
metadata:
  execution_mode: raw
---
One line about {Joke()}.

```public.json
[
  {"name": "Rhyme", "description": "A rhyme", "parameters": {"type": "object", "properties": {}}, "cli_entry": true}
]
```

<!-- ==== -->

# Garden:Human
delivery_channel: buffered
'''

SOURCE = """\
# Order help desk
framework: calm
Helps with orders.
specialization:
  - orders
  - returns
author: Ana

Says: please and thank you.

## Check order id($id)
public: true
Looks at {$id}.

### Steps
- If $id has 8 digits
  - Return valid
- Otherwise

  - Return invalid

## Main
### Trigger
When the program starts
### Steps
- Greet the user
- Check order id
- End program
### Notes
- Be short

## Wave
- Say hello
- Return

## Think about it
Think of something that nobody has thought of.

---

# Backend
remote:
  type: mcp
  url: http://127.0.0.1:9/mcp
  transport: streamable-http
"""


def problems(text: str, name: str = "desk.pbasm") -> list[tuple[int | None, str]]:
    """The line and code of every problem in a text."""
    return [(problem.line, problem.code) for problem in read(text, name).errors]


def problem(text: str, name: str = "desk.pbasm") -> Problem:
    """The only problem."""
    (only,) = read(text, name).errors
    return only


def warned(text: str, name: str = "desk.pbasm") -> list[tuple[int | None, str]]:
    return [(warning.line, warning.code) for warning in read(text, name).warnings]


def line_of(text: str, part: str) -> int:
    """The number of the first line that contains this."""
    return next(number for number, line in enumerate(text.split("\n"), start=1) if part in line)


def files(texts: Mapping[str, str]) -> Callable[[str], str]:
    """Reads from a table instead of a folder."""

    def read_one(path: str) -> str:
        if path not in texts:
            raise NotFound(f"There is no {path}.", fix="Check the path.")
        return texts[path]

    return read_one
