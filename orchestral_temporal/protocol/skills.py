"""Skills and project instructions: text that enters a model's context and grants nothing (`spec/skills.md`)."""

from enum import StrEnum
from typing import Annotated, Final

from orchestral_temporal.protocol.base import JsonObject, TextSet, Word
from orchestral_temporal.protocol.digest import digest
from orchestral_temporal.protocol.errors import require
from orchestral_temporal.protocol.ids import Digest, ResourceId, is_blank
from orchestral_temporal.protocol.validation import (
    require_filled,
    require_sealed,
    require_sha256,
    require_text,
    require_unique,
    validate,
    validate_each,
)
from orchestral_temporal.protocol.words import dump

SkillId = Annotated[str, "one skill"]

SKILL_PROTOCOL: Final = "orchestral.skill/v1"


class SkillErrorCode(StrEnum):
    """What is wrong with a skill or a catalog; never on the wire."""

    INVALID = "Invalid"


_INVALID = SkillErrorCode.INVALID


class SkillSourceKind(StrEnum):
    """Where a skill was found."""

    BUILT_IN = "built_in"
    USER_CONFIGURED = "user_configured"
    WORKSPACE = "workspace"


class SkillSource(Word):
    """Where a skill comes from; information only, yet part of its digest."""

    kind: SkillSourceKind
    locator: str


class SkillCompatibility(Word):
    """What a skill says it needs; nobody enforces it. Of each group in `any_programs` one program is needed."""

    operating_systems: TextSet = ()
    architectures: TextSet = ()
    required_programs: TextSet = ()
    any_programs: tuple[TextSet, ...] = ()
    required_environment: TextSet = ()
    required_features: TextSet = ()


class SkillDependencies(Word):
    """Which tools and servers a skill speaks of; nobody enforces it."""

    tools: TextSet = ()
    mcp_servers: TextSet = ()


class SkillDescriptor(Word):
    """A skill as a catalog lists it, without its instructions; the digest covers them too."""

    protocol: str
    skill_id: SkillId
    name: str
    description: str
    version: str | None = None
    digest: Digest
    source: SkillSource
    compatibility: SkillCompatibility = SkillCompatibility()
    dependencies: SkillDependencies = SkillDependencies()


class SkillPackage(Word):
    """A whole skill."""

    descriptor: SkillDescriptor
    instructions: str


class SkillLoad(Word):
    """What a session keeps of a loaded skill: all of it, so that no replay reads a disk."""

    package: SkillPackage


class SkillCatalogDescriptor(Word):
    """The skills of one host, by name; the revision seals the list, not the id."""

    resource_id: ResourceId
    revision: Digest
    skills: tuple[SkillDescriptor, ...]


class ProjectInstruction(Word):
    """One instruction document and the folder it is for (`spec/session-context.md` §13.3)."""

    source: str
    scope: str
    content: str


def package_digest(package: SkillPackage) -> Digest:
    """The digest of a skill: its descriptor without the digest, and the instructions beside."""
    covered: JsonObject = {**dump(package.descriptor), "instructions": package.instructions}
    del covered["digest"]
    return digest(covered)


def seal_catalog(resource_id: ResourceId, skills: tuple[SkillDescriptor, ...]) -> SkillCatalogDescriptor:
    """Sort the skills of a host by name and give the list its revision.

    Raises:
        WordError: Invalid; the id is empty, a skill is malformed, or a name or skill id occurs twice.
    """
    ordered = tuple(sorted(skills, key=lambda skill: (skill.name, skill.skill_id)))
    catalog = SkillCatalogDescriptor(resource_id=resource_id, revision=_revision(ordered), skills=ordered)
    validate(catalog)
    return catalog


def _revision(skills: tuple[SkillDescriptor, ...]) -> Digest:
    return digest([dump(skill) for skill in skills])


def _check_set(name: str, members: tuple[str, ...]) -> None:
    require(not any(map(is_blank, members)), _INVALID, f"`{name}` has a blank entry; leave it out.")


@validate.register
def _(source: SkillSource) -> None:
    require_text("locator", source.locator, _INVALID)


@validate.register
def _(compatibility: SkillCompatibility) -> None:
    for name in (
        "operating_systems",
        "architectures",
        "required_programs",
        "required_environment",
        "required_features",
    ):
        _check_set(name, getattr(compatibility, name))
    for group in compatibility.any_programs:
        require(bool(group), _INVALID, "`any_programs` has an empty group; leave it out.")
        _check_set("any_programs", group)


@validate.register
def _(dependencies: SkillDependencies) -> None:
    _check_set("tools", dependencies.tools)
    _check_set("mcp_servers", dependencies.mcp_servers)


@validate.register
def _(skill: SkillDescriptor) -> None:
    require(skill.protocol == SKILL_PROTOCOL, _INVALID, f"`protocol` is another one than {SKILL_PROTOCOL}.")
    for name in ("skill_id", "name", "description", "version"):
        require_text(name, getattr(skill, name), _INVALID)
    require_sha256("digest", skill.digest, _INVALID)
    validate(skill.source)
    validate(skill.compatibility)
    validate(skill.dependencies)


@validate.register
def _(package: SkillPackage) -> None:
    validate(package.descriptor)
    require_text("instructions", package.instructions, _INVALID)
    require_sealed("digest", package.descriptor.digest, package_digest(package), _INVALID)


@validate.register
def _(catalog: SkillCatalogDescriptor) -> None:
    require_filled("resource_id", catalog.resource_id, _INVALID)
    validate_each(catalog.skills)
    names = [skill.name for skill in catalog.skills]
    require_unique("name", names, _INVALID)
    require_unique("skill_id", (skill.skill_id for skill in catalog.skills), _INVALID)
    require(names == sorted(names), _INVALID, "`skills` are not sorted by name; seal the catalog again.")
    require_sealed("revision", catalog.revision, _revision(catalog.skills), _INVALID)
