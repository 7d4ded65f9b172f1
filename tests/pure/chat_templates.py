"""Chat templates in the style of those that models are published with: each uses what its family uses."""

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

TOOLS = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {{- '\\n<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {{- tool_call.arguments | tojson(indent=2) }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{#- The system message comes apart, so that the date can stand in it. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

MISTRAL = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)

GEMMA = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{% for message in messages %}
    {% if (message['role'] == 'assistant') %}
        {% set role = 'model' %}
    {% else %}
        {% set role = message['role'] %}
    {% endif %}
{{ '<start_of_turn>' + role + '
' + message['content'] | trim + '<end_of_turn>
' }}
{% endfor %}
{% if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}
"""

REASONING = """\
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1, seen=0) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string \
and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {{- '<|im_start|>' + message.role }}
            {{- '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}
            {{- content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
    {%- set ns.seen = ns.seen + 1 %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

TRAINING = (
    "{% macro turn(role, text) -%}\n<|im_start|>{{ role }}\n{{ text }}{%- endmacro %}"
    "{%- for message in messages %}{% if message.role == 'system' %}{% continue %}{% endif %}"
    "{%- if message.role == 'assistant' %}{{ turn(role='assistant', text='') }}"
    "{%- generation -%}{% set inside = 1 %}{{ message.content }}<|im_end|>{%- endgeneration %}"
    "{{ inside is defined }}"
    "{% else %}{{ turn(message.role, message.content) }}<|im_end|>{% endif %}"
    "{% if loop.index > 6 %}{% break %}{% endif %}{% endfor %}"
)

ODDS_AND_ENDS = """\
{%- set items = {'z': [1, 2.5, none, true], 'ä': '<&"\\''} %}
{{ items | tojson }} {{ items | tojson(indent=4) }} {{ items | tojson(separators=(',', ':')) }}
{{ items | tojson(ensure_ascii=true) }} {{ items | tojson(sort_keys=true) }}
{% for key, value in items.items() %}{{ key }}={{ value }};{% endfor %}
{{ messages | length }} {{ messages | map(attribute='role') | join(', ') }} {{ messages[-1].content[:3] }}
{{ (messages | selectattr('role', 'equalto', 'user') | list | length) }} {{ 'abc'[::-1] }} {{ [3, 1, 2] | sort }}
{{ messages[0].missing }}|{{ messages[0].missing is defined }}|{{ messages[0].get('missing', 'fallback') }}
{{ 'a,b,,c'.split(',') }} {{ ' x '.strip() }}|{{ 'xxaxx'.lstrip('x') }}|{{ 'Ab'.upper() }}|{{ 'ab' in 'cabd' }}
{{ 7 // 2 }} {{ 7 % 3 }} {{ 2 ** 5 }} {{ 7 / 2 }} {{ -3 | abs }} {{ 'a' ~ 1 ~ none ~ true }} {{ 'tEst' | title }}
{{ 'aXbXc'.replace('X', '-') }} {{ 'aXbXc' | replace('X', '-') }} {{ 'x' | default('y') }} {{ nothing | default('y') }}
{% if messages is iterable and items is mapping and 'a' is string and 1 is number and none is none %}yes{% endif %}
{% for n in range(1, 10, 3) %}{{ loop.index }}/{{ loop.length }}:{{ n }}{{ ',' if not loop.last }}{% endfor %}
{% set text %}block {{ 1 + 1 }}{% endset %}{{ text | trim | upper }}
{% for message in messages if message.role == 'user' %}{{ loop.index0 }}{% else %}nobody{% endfor %}
{{ dict(a=1) }} {{ (1, 2) }} {{ [1, 'a', none, true] }} {{ 1.0 }} {{ 'é' | length }} {{ ['b', 'a'] | first }}
"""

ALL = {
    "chatml": CHATML,
    "tools": TOOLS,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
    "gemma": GEMMA,
    "reasoning": REASONING,
    "training": TRAINING,
    "odds and ends": ODDS_AND_ENDS,
}
