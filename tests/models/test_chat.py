"""Chat templates: the same text as transformers, and no harm from a template that means it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from sooner.errors import InputError, ModelError
from sooner.models.chat import TEMPLATE_CHARACTERS, ChatTemplate
from tests.support.tiny_models import CHAT

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "  Be <brief> & 'kind'.  "},
    {"role": "user", "content": "Grüße 😀\nsecond line"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."},
    {"role": "user", "content": "And {{ this }} {% now %}?"},
]
TEMPLATES = {
    "chatml": CHAT,
    "first message is special": """{{- bos_token }}
        {%- if messages[0]['role'] == 'system' %}
            {%- set system = messages[0]['content'] | trim %}
            {%- set messages = messages[1:] %}
        {%- else %}
            {%- set system = "" %}
        {%- endif %}
        {{- "<|start|>system<|end|>\n\n" + system }}
        {%- for m in messages %}
            {{- '<|start|>' + m.role + '<|end|>\n\n' + m['content'] | trim + '<|eot|>' }}
        {%- endfor %}
        {%- if add_generation_prompt %}{{- '<|start|>assistant<|end|>\n\n' }}{%- endif %}""",
    "namespace, macro and loop controls": """
        {%- macro show(m, last) -%}
            [{{ m.role | upper }}]
            {{- m.content.split('</think>')[-1].lstrip('\n') if m.role == 'assistant' else m.content }}
            {%- if not last %}|{% endif -%}
        {%- endmacro -%}
        {%- set ns = namespace(count=0, seen=[], last='') -%}
        {% for m in messages %}
            {%- if m.role == 'system' %}{% continue %}{% endif -%}
            {%- if ns.count == 2 %}{% break %}{% endif -%}
            {%- set ns.count = ns.count + 1 -%}
            {%- set ns.last = ns.last ~ loop.index0 ~ ',' -%}
            {{ show(m, loop.last) }}
        {% endfor %}
        {{- ns.last }}{{ loop is defined }}{{ ns.count * 3 - 1 }}{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 5 }}""",
    "json, tests and filters": """{{ messages | tojson }}{{ {'a': [1, 'é', none, true]} | tojson(indent=2) }}
        {{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | tojson }}
        {{ messages | rejectattr('role', 'in', ['user']) | map(attribute='role') | join(', ') }}
        {{ messages[::-1][0].content | length }}{{ 'a b c'.replace(' ', '--') }}{{ 'abab' | replace('a', 'xx') }}
        {{ tools is defined }}{{ tools is none }}{{ missing is defined }}{{ missing }}{{ missing | default('no') }}
        {{ 'x,y'.split(',') | last }}{{ messages | map(attribute='role') | unique | list }}{{ [3, 1, 2] | sort }}
        {{ ', '.join(['a', 'b']) }}{{ 'one\ntwo' | indent(4) }}{{ {'b': 1, 'a': 2} | dictsort }}{{ 'A' in 'BAC' }}
        {% for key, value in {'k': 'v'}.items() %}{{ key }}={{ value }}{% endfor %}{{ 'title me' | title }}
        {{ messages[0].content | e }}{{ range(3) | list }}{{ [1, 2] + [3] }}{{ 'ab' * 3 }}{{ dict(a=1) }}""",
    "generation tags": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "whitespace control": """
{% for m in messages %}
    {% if m.role == 'user' %}
  <{{ m.content }}>
    {% endif %}
{% else %}
none
{% endfor %}
done
""",
    "recursive loop": """{% for item in [{'n': 1, 'below': [{'n': 2, 'below': []}]}] recursive %}{{ item.n }}
        {{- loop(item.below) }}{% endfor %}""",
    "block set and filter": "{% set x %}a{{ messages[0].role }}{% endset %}{% filter upper %}{{ x }}b{% endfilter %}",
    "constants": "{{ 'a' ~ 1 ~ none ~ true }}{{ 'x' | upper }}{{ -1 | abs }}{{ not false }}{{ 1 if x else 2 }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("prompt", [True, False])
def test_renders_as_transformers_does(name: str, prompt: bool) -> None:
    from transformers.utils.chat_template_utils import _compile_jinja_template

    reference = _compile_jinja_template(TEMPLATES[name])
    variables = {"messages": TALK, "tools": None, "documents": None, "add_generation_prompt": prompt, **SPECIALS}
    assert ChatTemplate(TEMPLATES[name], SPECIALS).render(TALK, prompt) == reference.render(**variables)


def test_the_template_may_refuse_with_its_own_words() -> None:
    template = "{% if messages[0].role != 'user' %}{{ raise_exception('the first role must be user') }}{% endif %}ok"
    with pytest.raises(InputError, match="chat template refuses the messages: the first role must be user"):
        ChatTemplate(template, {}).render(TALK)
    assert ChatTemplate(template, {}).render(TALK[1:]) == "ok"


def test_today() -> None:
    template = ChatTemplate("{{ strftime_now('%Y-%m-%d') }}", {})
    assert template.render(TALK) == time.strftime("%Y-%m-%d")


def test_messages_are_not_changed_and_a_template_can_be_used_again() -> None:
    before = json.dumps(TALK)
    template = ChatTemplate(CHAT, {})
    assert template.render(TALK) == template.render(TALK)
    assert json.dumps(TALK) == before


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "there are no messages"),
        (["hi"], "message 0 is 'hi', must be an object"),
        ([{"role": "user"}], "message 0 has the content None, must be text"),
        ([{"role": "user", "content": ["a"]}], r"message 0 has the content \['a'\], must be text"),
        ([TALK[0], {"content": "a"}], "message 1 has the role None, must be text such as 'user'"),
        ([{"role": "", "content": "a"}], "message 0 has the role ''"),
        ([{"role": 3, "content": "a"}], "message 0 has the role 3"),
    ],
)
def test_messages_are_checked(messages: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ChatTemplate(CHAT, {}).render(messages)


def test_a_long_conversation_is_within_the_budget() -> None:
    talk = [{"role": role, "content": "word " * 400} for role in ("user", "assistant")] * 1000  # 4 MB
    for template in (CHAT, TEMPLATES["first message is special"]):
        assert len(ChatTemplate(template, SPECIALS).render(talk)) > 4_000_000


def test_content_may_be_absent_beside_tool_calls() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    assert ChatTemplate("{{ messages[0].tool_calls[0].name }}", {}).render([message]) == "f"


HOSTILE = {
    "endless loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "endless loops that skip all": "{% for a in range(99999) %}"
    "{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
    "a long range": "{% for a in range(10 ** 12) %}{% endfor %}",
    "text times a number": "{{ 'a' * 10 ** 10 }}",
    "a number times text": "{% set n = 10 ** 10 %}{{ n * 'a' }}",
    "a list times a number": "{% set x = [0] * 10 ** 10 %}",
    "a tower of powers": "{{ 9 ** 9 ** 9 ** 9 }}",
    "a growing number": "{% set ns = namespace(x=3) %}{% for a in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "doubling by ~": "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "doubling by +": "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "doubling by join": "{% set ns = namespace(x='ab') %}{% for a in range(99) %}"
    "{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}",
    "doubling lists": "{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "doubling by replace": "{% set ns = namespace(x='aa') %}{% for a in range(99) %}"
    "{% set ns.x = ns.x.replace('a', ns.x) %}{% endfor %}",
    "the replace filter": "{% set ns = namespace(x='aa') %}{% for a in range(99) %}"
    "{% set ns.x = ns.x | replace('a', ns.x) %}{% endfor %}",
    "the join method": "{% set ns = namespace(x='ab') %}{% for a in range(99) %}"
    "{% set ns.x = ns.x.join(['', ns.x, '']) %}{% endfor %}",
    "doubling in a block": "{% set x = 'a' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 60 + "{{ x }}",
    "output of a loop": "{% for a in range(99999) %}{{ messages[1].content * 999 }}{% endfor %}",
    "fixed text in a loop": "{% for a in range(99999) %}{% for b in range(9) %}"
    + "x" * 9999
    + "{% endfor %}{% endfor %}",
    "a macro that calls itself twice": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
    "{{ m(60) }}",
    "a loop that calls itself twice": "{% for n in [60] recursive %}{% if n %}"
    "{{ loop([n - 1]) }}{{ loop([n - 1]) }}{% endif %}{% endfor %}",
    "a macro that never ends": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a loop that calls itself": "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "padding": "{{ 'a'.ljust(10 ** 10) }}",
    "center": "{{ 'a' | center(10 ** 10) }}",
    "zfill": "{{ 'a'.zfill(10 ** 10) }}",
    "a width in a format": "{{ '{:>10000000000}'.format(1) }}",
    "a width in %": "{{ '%10000000000d' % 1 }}",
    "a width in the format filter": "{{ '%10000000000d' | format(1) }}",
    "a width in the time": "{{ strftime_now('%10000000000d') }}",
    "indent": "{{ 'a\nb' | indent(10 ** 10) }}",
    "indent by text": "{{ 'a\nb' | indent('x' * 1000) }}",
    "json indent": "{{ [[1]] | tojson(indent=10 ** 10) }}",
    "lipsum": "{{ lipsum(n=10 ** 6) }}",
    "round": "{{ 1.5 | round(10 ** 10, 'ceil') }}",
    "Python's inside": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "Python's inside by attr": "{{ ''|attr('__class__') }}",
    "globals of a function": "{{ raise_exception.__globals__.keys() }}",
    "structures in structures": "{% set x = ['a'] %}" + "{% set x = [x, x] %}" * 99 + "{{ x }}",
    "dicts in dicts": "{% set x = 'a' %}" + "{% set x = dict(a=x, b=x) %}" * 99 + "{{ x | tojson }}",
    "two large structures compared": "{% set x = ['a'] %}{% set y = ['a'] %}"
    + "{% set x = [x, x] %}{% set y = [y, y] %}" * 99
    + "{{ x == y }}",
    "one text many times": "{% set x = 'a' * 9999999 %}{{ x" + " ~ x" * 999 + " }}",
    "a list of one text": "{% set x = 'a' * 9999999 %}{{ [x" + ", x" * 999 + "] | tojson }}",
    "long texts compared": "{% set x = 'a' * 999999 %}{% set y = 'a' * 999999 %}"
    "{% for i in range(99999) %}{% if x == y %}{% endif %}{% endfor %}",
    "the environment's own": "{{ self.__init__ }}{{ self._TemplateReference__context.environment.metered }}",
    "a namespace with Python's names": "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "a namespace built with them": "{{ namespace({'__class__': 1}) }}",
    "changing the messages": "{{ messages.append(1) }}",
    "a file": "{% include '/etc/passwd' %}",
    "an import": "{% import 'os' as os %}",
    "a syntax error": "{% for %}",
    "an unknown filter": "{{ 'a' | nonsense }}",
    "division by zero": "{{ 1 // 0 }}",
    "a missing attribute": "{{ missing.attribute }}",
    "deep brackets": "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "deep lists": "{{ " + "[" * 20_000 + "]" * 20_000 + " }}",
    "deep ifs": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "deep loops": "{% for a in [1, 2] %}" * 300 + "{% endfor %}" * 300,
    "a long chain": "{{ 1" + " + 1" * 15_000 + " }}",
    "too long": "x" * (TEMPLATE_CHARACTERS + 1),
}


def test_errors_tell_the_message_from_the_model() -> None:
    with pytest.raises(ModelError, match="no valid Jinja"):
        ChatTemplate(HOSTILE["a syntax error"], {}).render(TALK)
    with pytest.raises(InputError, match="was stopped: it takes more than"):
        ChatTemplate(HOSTILE["endless loops"], {}).render(TALK)


_MEASURE = """
import json, resource, sys, time
from pathlib import Path
from sooner.errors import SoonerError
from sooner.models.chat import ChatTemplate

def taken():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

talk, hostile = json.load(sys.stdin)
limit = taken() + (200 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
results = {}
for name, template in hostile.items():
    start = time.process_time()
    try:
        ChatTemplate(template, {}).render(talk)
    except SoonerError as error:
        results[name] = time.process_time() - start, str(error)
print(json.dumps(results))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_hostile_template_ends_in_one_line_without_much_time_or_memory() -> None:
    """In a process of its own, under a hard limit on its address space."""
    run = subprocess.run(
        [sys.executable, "-c", _MEASURE],
        input=json.dumps([TALK, HOSTILE]),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    results = json.loads(run.stdout)
    assert results.keys() == HOSTILE.keys()
    for name, (seconds, message) in results.items():
        assert "chat template" in message, name
        assert "MemoryError" not in message, name
        assert "\n" not in message, name
        assert len(message) < 400, name
        assert seconds < 1.0, name
