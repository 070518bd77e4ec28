"""Everyday words of work that people use for one another; a line is a group, and a word may be in several."""

from functools import cache

from orchestral_temporal.adapters.models.offline.words import word_stems

_GROUPS = """
abroad foreign overseas international
accept receive obtain
account profile
add create make made build built
additional extra bonus supplement surcharge
address location
agree agreement contract
alert alarm page pager notification notify
allow permit permission authorise authorize approve approval entitled eligible
annual annually year yearly
answer reply respond response
app application program software
argue disagree dispute conflict
arrive arrival come
ask request apply application
assist help support
attempt try tries retry repeat again
avoid prevent
baby child kid children parent parental newborn
backup snapshot copy dump
bad wrong incorrect
begin start launch boot commence first
big large size
bigger larger exceed over above beyond
boss manager supervisor lead
break broke broken damage damaged fail failure crash
breakfast lunch dinner eat food meal
bring brought carry
budget allowance quota
bug defect error fault issue problem
building office site headquarters
buy bought purchase order procure procurement
cable wire plug
calendar schedule timetable rota
call phone ring telephone mobile
cancel abort withdraw
cancel end quit terminate
car vehicle drive parking
cause reason because why
certificate proof note
change modify alter update edit
charge fee price cost
cheap low
check verify validate test inspect
choose chose chosen select pick
class course training train teach taught learn workshop
clean wash
close closed shut shutdown
colleague coworker teammate peer
command instruction
company firm organisation organization business
complete finish done
computer laptop notebook machine workstation device
config configuration setting option parameter
connect connection link
contact reach
control manage administer
cost spend spent expense money price pay
count number amount quantity
customer client user subscriber
daily day
data information info record
database db sql
deadline due latest
decide decision
decrypt decryption encrypt encryption cipher
delay late slow
delete remove erase purge wipe destroy drop
deliver delivery send sent transmit
deny refuse reject decline
deploy deployment release ship rollout publish
dev development developer engineer programmer
discard dispose recycle
disk drive storage volume
display monitor screen
divide split
doc document documentation guide manual handbook
doctor physician medical
door entrance entry enter access
earn salary wage compensation pay paid payroll
email mail
emergency urgent critical severe severity
employee staff worker people person team
end finish stop expire terminate
fast quick quickly speed latency
fix repair resolve correct patch
flight fly plane air
folder directory path
forbid forbidden ban prohibit prohibited never disallow
freeze frozen
frequency frequently every interval
gift present
goal target aim objective
guest visitor
happen occur
head lead leader director chief
hire recruit interview candidate
holiday vacation leave absence
home remote remotely
hotel accommodation lodging room
hour hourly
ill sick illness
illegal law legal
incident outage emergency
increase raise grow growth
inform tell told announce notify
invoice bill billing
join joined onboard onboarding starter newcomer new
keep kept retain retention preserve store stored hold
key token
lamp light led
leave left quit resign resignation departure offboarding leaver
length long short
lock locked block blocked
log logging logs
login signin sign authenticate authentication
lose lost missing
lower reduce decrease cut
maintenance upkeep service
maximum max limit cap ceiling most upper highest longest largest biggest
meeting standup sync
minimum min least lower lowest shortest smallest
month monthly
move migrate migration transfer
name called title
network internet
night overnight
normal usual usually default
old previous former obsolete
owner responsible charge maintain maintainer accountable
password passphrase credential secret
percent percentage ratio share
plan roadmap
police authority authorities
postmortem retrospective
prod production live
queue backlog
reboot restart
refund reimburse reimbursement claim
release version
replace swap exchange
repo repository repositories
report notify
restore recover recovery
revert rollback undo back
review approve approval approver
roof top
rotate rotation renew
rule policy guideline
run execute
save store
screenshot picture image
server host machine node
shift rota oncall
speak spoke talk
stage staging
steal stole stolen theft
step procedure process
stop kill halt off
supplier vendor
switch toggle flag
throughput rate
ticket issue
train rail railway
travel trip journey
turn enable disable switch
wait timeout delay
warning alert
week weekly
wifi wlan wireless
write wrote written
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
