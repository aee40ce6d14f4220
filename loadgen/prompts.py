"""Synthetic prompts: plain words, as many as tokens were asked for, different in every request of every run.

A fixed prompt lets a server's prefix cache answer from memory and flatters every figure (vLLM issue 54227 saw
a first token 49 times sooner). So a prompt is drawn from its arrival's seed salted with the run id: the
lengths are the schedule's and repeat with the seed, the text does not. How many words make the tokens asked
for, the preflight learns from the server (client/calibration.py); what it counted is in the records.
"""

from __future__ import annotations

import hashlib
from random import SystemRandom

WORDS: tuple[str, ...] = tuple(
    """
    able air also area army art back ball bank base bed best bird black blood blue boat body book born
    both box boy bread bring brown build call calm camp car case cause cell change child city class clear
    cloud coast cold color common cook corn cost count course cover cross cut dark data day deal deep
    desk door down draw dream dress drink drive drop dry east edge egg end energy engine even event ever
    face fact fall family farm fast father field fight figure fill film final fire fish floor flow fly
    food foot form found free fresh friend front full game garden gate girl glass gold good grand grass
    great green ground group grow hair half hall hand happy hard head hear heart heat heavy help high
    hill history hold home hope horse hotel hour house human ice idea inch iron island join jump keep key
    kind king know lady lake land large last late law lead leaf learn left leg letter level life light
    line list little live local long look loss love low lunch main man map mark market master matter mean
    meat meet metal middle mile milk mind mine minute model money month moon morning mother motion
    mountain mouth move music name nation near neck new news night north nose note number ocean office
    oil old open order other outside page paint pair paper park part party past path pay peace people
    phone picture piece place plain plane plant play point pool poor port post power press price print
    product public pull push queen quick quiet race radio rain raise range rate reach read real reason
    record red rest rice rich ride right ring rise river road rock roll room root rose round row rule run
    salt sand save scale school science sea season seat second seed sell sense serve set shade shape
    share sharp sheep ship shirt shoe shop short side sign silver simple sing single sister size skin sky
    sleep slow small smile snow soft soil son song sound south space speak speed spend spot spring square
    stage stand star start state stay steam steel step stone stop store storm story street strong study
    style sugar summer sun supply surface sweet table tail tall team term test thick thin thing time tiny
    tone tool top total touch town track trade train travel tree trip truck true turn type uncle under
    unit upper use valley value view village voice wait walk wall war warm wash watch water wave way
    weather week weight west wheel white whole wide wife wild wind window wine wing winter wire wish
    woman wood word work world write yard year yellow young
    """.split()
)


def synthetic_prompt(words: int, prompt_seed: int, run_id: str) -> str:
    """So many plain words; the same for the same seed and run, others in another run.

    Two bytes of a hash pick each word, at a tenth of what it costs to seed a random generator anew.
    """
    picks = hashlib.shake_128(f"{run_id}/{prompt_seed}".encode()).digest(2 * max(1, words))
    return " ".join([WORDS[pick % len(WORDS)] for pick in memoryview(picks).cast("H")])


def sample_prompt(words: int) -> str:
    """A prompt to count the tokens of: up to all of WORDS, each but once, for their mean; other ones at every
    call."""
    return " ".join(SystemRandom().sample(WORDS, words))
