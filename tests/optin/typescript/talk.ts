/**
 * Talks to a run as a service in another language would: the SDK of its own registry, plain JSON, and the names that
 * a run shows to Temporal. It shares no line with the Python package.
 *
 *     node build/talk.js ADDRESS submit RUN COMMAND    the update `submit`; prints the acknowledgement
 *     node build/talk.js ADDRESS signal RUN COMMAND    the signals `steer`, `cancel`, `resolve_request` or `command`
 *     node build/talk.js ADDRESS ack RUN COMMAND_ID    the query `command_ack`
 *     node build/talk.js ADDRESS start RUN QUEUE TASK  the short form of a start
 *     node build/talk.js ADDRESS result RUN            waits for the end; prints the result object
 *
 * COMMAND is this service's own idea of one: {"verb", "command_id", "text"}, with "target" for an edit of the queue and
 * "request_id" for an answer.
 */

import { createHash } from 'node:crypto';
import { ApplicationFailure, Client, Connection, WorkflowFailedError } from '@temporalio/client';

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type JsonObject = { [key: string]: Json };

interface Said {
  verb: 'steer' | 'enqueue' | 'replace' | 'withdraw' | 'answer' | 'cancel';
  command_id: string;
  text: string;
  target?: string;
  request_id?: string;
}

/** RFC 8785. It writes texts and numbers as this language does anyway, so that only the order of keys is left to do. */
function canonical(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const fields = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${fields.map(([key, each]) => `${JSON.stringify(key)}:${canonical(each)}`).join(',')}}`;
}

/** A command as the wire has it, under the digest of all its other fields. */
function envelope(runId: string, said: Said): JsonObject {
  const command: JsonObject = {
    command_id: said.command_id,
    run_id: runId,
    request_id: said.request_id ?? null,
    payload: payload(said),
  };
  const queue = operation(said);
  if (queue !== undefined) command.extensions = { 'orchestral/input-queue.v1': queue };
  return { ...command, command_digest: createHash('sha256').update(canonical(command)).digest('hex') };
}

function payload(said: Said): JsonObject {
  const content = [{ media_type: 'text/plain', schema_id: null, body: { kind: 'inline', value: said.text } }];
  switch (said.verb) {
    case 'cancel':
      return { type: 'cancel', reason: said.text };
    case 'answer':
      return { type: 'resolve_request', response: { type: 'input', content } };
    default:
      return { type: 'steer', content };
  }
}

function operation(said: Said): JsonObject | undefined {
  switch (said.verb) {
    case 'enqueue':
      return { operation: 'enqueue' };
    case 'replace':
    case 'withdraw':
      return { operation: said.verb, target: said.target ?? '' };
    default:
      return undefined;
  }
}

/** The name and the payload of the plainest signal that says it. */
function signal(runId: string, said: Said): [string, JsonObject] {
  switch (said.verb) {
    case 'steer':
      return ['steer', { command_id: said.command_id, text: said.text }];
    case 'cancel':
      return ['cancel', { command_id: said.command_id, reason: said.text }];
    case 'answer':
      return [
        'resolve_request',
        { command_id: said.command_id, request_id: said.request_id ?? '', answer: said.text },
      ];
    default:
      return ['command', envelope(runId, said)];
  }
}

/** The result object of a run that has ended: of a failed one it is the failure's first detail. */
async function result(client: Client, runId: string): Promise<Json> {
  try {
    return await client.workflow.getHandle(runId).result();
  } catch (error) {
    if (error instanceof WorkflowFailedError && error.cause instanceof ApplicationFailure) {
      return (error.cause.details?.[0] as Json | undefined) ?? null;
    }
    throw error;
  }
}

async function carryOut(client: Client, verb: string, runId: string, given: string[]): Promise<Json> {
  const run = client.workflow.getHandle(runId);
  const [first = '', second = ''] = given;
  switch (verb) {
    case 'submit': {
      const command = envelope(runId, JSON.parse(first) as Said);
      return await run.executeUpdate<Json, [Json]>('submit', {
        args: [command],
        updateId: command.command_digest as string, // so that a request sent twice is one command to the server too
      });
    }
    case 'signal': {
      const [name, value] = signal(runId, JSON.parse(first) as Said);
      await run.signal(name, value);
      return null;
    }
    case 'ack':
      return await run.query<Json, [Json]>('command_ack', { command_id: first });
    case 'start':
      await client.workflow.start('AgentRun', { workflowId: runId, taskQueue: first, args: [{ input: second }] });
      return { run_id: runId };
    case 'result':
      return await result(client, runId);
    default:
      throw new Error(`${verb} is no verb of this program`);
  }
}

const [address = '', verb = '', runId = '', ...given] = process.argv.slice(2);
const connection = await Connection.connect({ address });
try {
  console.log(JSON.stringify(await carryOut(new Client({ connection }), verb, runId, given)));
} finally {
  await connection.close();
}
