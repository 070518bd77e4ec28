"""Every bound by name, with its unit and the reason for the number (decision 28)."""

INLINE_RESULT_BYTES = 245_760
"""Canonical bytes of one tool result that stay in history: eight of them and a prompt fit one 4 MB message."""

TAIL_BYTES = 8_192
"""Canonical bytes of new items that go along with an attempt: a copy this short beats a look-up."""

START_BYTES = 1_000_000
"""UTF-8 bytes of a start argument: the server refuses 2 MiB, and the result repeats none of it."""

TASK_SECONDS = 4
"""Seconds a worker may hold a workflow task: only then is its death noticed; 2,000 events replay in one."""

COMMAND_BYTES = 262_144
"""UTF-8 bytes of one command: a person's text with room to spare; larger ones belong into a file."""

QUEUED_INPUTS = 128
"""Steers that may wait at once, queued or not (`stream_buffer` of the agent-loop sheet)."""

QUEUE_BYTES = 262_144
"""Canonical bytes of the input that waits: it rides in one request, beside answers and late outcomes."""

ANSWERS_BYTES = 262_144
"""Canonical bytes of the answers to all questions of one turn, for the same reason; each may have its share."""

COMMANDS_RESERVED = 100
"""Commands beyond that for answers to what is asked, and twice as many for cancels: no run may be out of reach."""

COMMANDS_PER_RUN = 10_000
"""Commands a run takes (decision 11): each is two events of the journal, which the state holds."""

COMMAND_ID_BYTES = 255
"""UTF-8 bytes of a command id: it names events and stands in every acknowledgement."""

REASON_BYTES = 4_096
"""UTF-8 bytes of a cancel's reason: it stands in four events and in the result."""

NAME_BYTES = 255
"""UTF-8 bytes of the name of an agent, a tenant, or who settles an effect."""

PROGRESS_BYTES = 500
"""UTF-8 bytes of what a tool says of its progress: a line for those who watch."""

SETTLEMENT_BYTES = 1_024
"""UTF-8 bytes of what an operator says of an unknown effect: it stands in every later context of the session."""

WORKSPACES = 32
"""Workspaces of a run: each call of a tool carries them."""

PATH_BYTES = 4_096
"""UTF-8 bytes of a path: what Linux takes."""

BINDING_BYTES = 1_000_000
"""UTF-8 bytes of an agent's bound parts: one payload, once a run."""

CALLS_PER_TURN = 128
"""Calls in one turn of a model: their arguments wait in the state, and one activation must judge them all."""

CALL_ID_BYTES = 255
"""UTF-8 bytes of the model's id of a question: people type it when they answer."""

ATTEMPTS_PER_ROUND = 20
"""Attempts of one model request: a request that ends every worker that takes it must end itself (decision 18)."""

ATTEMPTS_PER_CALL = 20
"""Attempts of one tool call, for the same reason; between two of them lies a lost worker or a stop of one."""

ACKS_BYTES = 200_000
"""Canonical bytes of acknowledgements in a result: the newest ones; the journal has them all."""

REFUSALS_KEPT = 32
"""Refused payloads a view shows: the newest ones; more would let a stranger grow the state."""

SESSION_BATCH_BYTES = 262_144
"""Bytes of session records that wait in a run before they are appended (decision 2)."""

SESSION_APPEND_BYTES = 800_000
"""Bytes of session records in one update: below the 1 MB that one payload may have."""

RESULT_JOURNAL_BYTES = 262_144
"""Bytes of run journal that ride in the result of a run (decision 24)."""

SUMMARY_BYTES = 200
"""UTF-8 bytes of a summary in the Temporal UI, which cuts labels at 120 characters."""

ATTRIBUTE_BYTES = 1_024
"""UTF-8 bytes of a search attribute's value: over 2,048 encoded bytes the server terminates the run."""

UNREADABLE_TURNS = 3
"""Turns in a row with calls that cannot be run before the run fails (divergence 5)."""

MESSAGE_CHARACTERS = 500
"""Characters of a free-text message that we quote from outside."""

RUN_ID_BYTES = 255
"""UTF-8 bytes of a run id: what the smallest SQL schema of a Temporal server stores."""

SESSION_ID_BYTES = 247
"""UTF-8 bytes of a session id: its workflow id carries `session/` before it."""

HISTORY_LIMIT = 128
"""Records of earlier runs a context may hold (`spec/agent-loop.md` §2)."""

RESULT_BYTES = 900_000
"""Canonical bytes of a run's result: below the 1 MB that one payload may have."""

ARGUMENT_BYTES = 65_536
"""UTF-8 bytes of one call's argument text: a file's content fits, and eight calls stay below one payload."""

MODEL_TURN_BYTES = 400_000
"""UTF-8 bytes of one turn of a model as it stands in history: with other answers it must fit one 4 MB message."""

MODEL_TEXT_BYTES = 200_000
"""Canonical bytes of a turn's text in history: it stands three times in a run's result, and that is one payload."""

MODEL_STREAM_BYTES = 16_777_216
"""UTF-8 bytes that one attempt may stream: four times a million tokens, and some ten copies fit a worker's memory."""

FENCE_OUTCOME_BYTES = 8_192
"""UTF-8 bytes of an outcome that a fence holds: no activity's result has it, so it travels with the next model request.

All calls of a turn may do so at once, and that request is one payload, below 2 MiB also where quoting adds to it.
"""

REPORT_PAUSE_MS = 600_000
"""Milliseconds at most between two words of a worker whose lost call is still at work: a day of them is 150 signals."""

RECONCILE_SECONDS = 30
"""Seconds a tool may take to say what became of a lost attempt: a question to its service, no work."""
