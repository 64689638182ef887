"""The HTML of a report. It loads nothing from anywhere."""

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>sooner certify: {{ report.verdict }}</title>
<style>
:root { --ink: #1c1e21; --soft: #5b6068; --page: #ffffff; --line: #d9dce1; --good: #1a7f4b; --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #9aa0a8; --page: #16181b; --line: #33373d; --good: #5cc78f; --bad: #f2837b; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 66rem;
  margin: 2rem auto; padding: 0 1rem; }
h1, h2 { font-weight: 600; line-height: 1.2; }
h2 { margin-top: 2.5rem; }
.verdict { padding: .8rem 1rem; border: 1px solid var(--line); border-left: .4rem solid var(--good); }
.fail.verdict { border-left-color: var(--bad); }
.soft { color: var(--soft); }
.pass > .mark, td.pass { color: var(--good); }
.fail > .mark, td.fail { color: var(--bad); font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--soft); }
td.pass, td.fail { white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
summary { cursor: pointer; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .82rem; margin: .3rem 0; }
</style>
<h1>sooner certify</h1>
<p class="verdict {{ report.verdict }}"><strong>{{ report.line }}</strong></p>

<h2>What was tested</h2>
<dl>
{% for name, value in report.settings.items() %}
  <dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
  <dt>date</dt><dd>{{ report.date }}</dd>
  <dt>sooner</dt><dd>{{ report.sooner }}</dd>
</dl>
<table>
<tr><th>part</th><th>verdict</th><th>question</th><th>checks</th><th>seconds</th></tr>
{% for name, part in report.parts.items() %}
<tr><td><a href="#{{ name }}">{{ name }}</a></td><td class="{{ 'pass' if part.ok else 'fail' }}">
{{ 'pass' if part.ok else 'FAIL' }}</td><td>{{ part.question }}</td><td>{{ part.checks | length }}</td>
<td>{{ '%.1f' | format(part.seconds) }}</td></tr>
{% endfor %}
</table>
<p class="soft">{{ report.tests }} of the checks are statistical tests, each at the level {{ report.level }}. An exact
engine fails such a run by chance with a probability of at most {{ '%.1g' | format(report.false_alarm_rate) }}
(Bonferroni). "Would have seen" is the smallest total variation that a test sees with probability
{{ report.power }}.</p>

{% for name, part in report.parts.items() %}
<h2 id="{{ name }}">{{ name }}</h2>
<p class="soft">{{ part.question }}</p>
<div class="scroll"><table>
<tr><th></th><th>what</th><th>found</th></tr>
{% for check in part.checks | sort(attribute='ok') %}
<tr><td class="{{ 'pass' if check.ok else 'fail' }}">{{ 'pass' if check.ok else 'FAIL' }}</td><td>{{ check.name }}</td>
<td>{{ check.text }}
{% if check.divergences %}
<details><summary>{{ check.divergences | length }} divergences</summary>
{% for found in check.divergences %}
<pre>prompt {{ found.prompt + 1 }}, {{ found.setting }}, {{ found.draft_tokens }} drafted: {{ found.text }}</pre>
{% endfor %}
</details>
{% endif %}
</td></tr>
{% endfor %}
</table></div>
{% endfor %}
"""
