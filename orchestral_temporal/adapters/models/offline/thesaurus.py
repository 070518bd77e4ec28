"""Everyday words of work that people use for one another; a line is a group, and a word may be in several."""

from functools import cache

from orchestral_temporal.adapters.models.offline.words import word_stems

_GROUPS = """
abroad foreign overseas international
add create make build made built new
agree agreement contract
alert alarm page pager notification notify
allow permit permission authorise authorize approve approval entitled eligible
answer reply respond response
ask request apply application
backup snapshot copy dump
begin start launch boot commence first
big large size
boss manager supervisor lead
break broken fail failure crash outage down
bug defect error fault issue problem
buy purchase order procure procurement bought
calendar schedule timetable rota
car vehicle parking drive
change modify alter update edit
cheap low
child kid baby parent parental newborn
choose select pick
colleague coworker teammate peer
company firm organisation organization business
computer laptop notebook machine workstation device
connect connection link
contact reach phone call ring telephone mobile
control manage administer
course training train teach learn class workshop
customer client user subscriber
database db sql
deadline due latest
decide decision
delete remove erase purge wipe destroy drop
deploy deployment release ship rollout publish
dev development developer engineer programmer
discard dispose recycle
doc document documentation guide manual handbook
doctor physician medical
email mail message
emergency urgent critical severe severity
encrypt encryption cipher
end finish stop terminate terminated complete expire
enter access entry door
environment stage staging
exam check verify validate test inspect
exceed over above beyond
expense cost spend spent price fee charge money pay
fast quick quickly speed latency
fix repair resolve correct patch
flight fly plane air
folder directory path
food meal lunch dinner eat breakfast
forbid ban prohibit disallow forbidden prohibited never
freeze frozen moratorium
frequency frequently every interval
guest visitor
hire recruit interview candidate
holiday vacation leave absence pto
home remote remotely
hotel accommodation lodging stay
ill sick illness
incident outage emergency
increase raise grow
join joiner onboard onboarding starter newcomer new
keep kept retain retention preserve store stored hold
kill stop terminate
late delay delayed slow
leave quit resign resignation departure offboard offboarding leaver
lock locked block blocked
log logging record logs
login signin sign authenticate authentication
lose lost missing stolen theft
lower reduce decrease cut
maximum max limit cap ceiling most upper highest
meeting standup call sync
minimum min least lower lowest
move migrate migration transfer
name called title
night overnight
number count amount
office building site headquarters
old previous former obsolete
owner responsible charge maintain maintainer accountable
password passphrase credential secret
people staff employee team worker person headcount
percent percentage ratio share
plan roadmap
postmortem retrospective review
quota allowance budget limit
reboot restart
refund reimburse reimbursement claim
repeat retry attempt again
replace swap exchange
restore recover recovery
revert rollback undo back
review approve approval approver
rotate rotation renew
rule policy guideline
salary wage compensation pay paid payroll
save store
screen monitor display
send sent deliver transmit
server host machine node
setting config configuration option parameter
share publish
shift rota oncall
shut close closed shutdown
slow latency delay
split divide
step procedure process
supplier vendor
switch toggle flag
ticket issue
train rail railway
travel trip journey
turn enable disable
wait timeout delay
wrong incorrect bad
year annual annually yearly
month monthly
week weekly
day daily
hour hourly
""".strip().splitlines()


@cache
def _related() -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for group in _GROUPS:
        stems = [word_stems(word)[0] for word in group.split()]
        for stem in stems:
            found.setdefault(stem, {}).update(dict.fromkeys(stems))
    return {stem: tuple(other for other in others if other != stem) for stem, others in found.items()}


def related(stem: str) -> tuple[str, ...]:
    """The stems of the words that may stand for this one."""
    return _related().get(stem, ())
