"""What a broken law says."""


class Broken(Exception):  # noqa: N818 -- a law is broken, the simulator is not
    """A law does not hold; `law` names where it is written."""

    def __init__(self, law: str, said: str) -> None:
        super().__init__(f"[{law}] {said}")
        self.law = law


def require(holds: object, law: str, said: str) -> None:
    """Hold a law.

    Raises:
        Broken: it does not hold.
    """
    if not holds:
        raise Broken(law, said)
