"""The Universal Category System of sound effects: ids at the front of file names, spelled out.

A name in it is `CatID_FXName_CreatorID_SourceID`, where the id is a category's code in capitals and a subcategory's in
small letters behind a capital (`AMBForst`: ambience, forest), perhaps with a category of the user's own behind a dash
(`AMBForst-EXT`). The list is UCS 8.2's, which its authors (universalcategorysystem.com) put into the public domain:
82 categories, 753 ids. Its explanations and synonyms are left out, and so are ids of earlier versions; an id of a known
category whose ending is not listed gives the category and the ending as it stands.
"""

from __future__ import annotations

import re
from functools import lru_cache

# What an ending stands for; in other cases than these a category says so (`=`), or it is the word itself.
_ENDINGS = """
Alrm=alarm Amus=amusement Anml=animal Antq=antique Appl=appliance Aqua=aquatic Av=audio_visual Brk=break Brst=burst
Bubl=bubbles Cele=celebration Chim=chime Clth=cloth Cnst=construction Crea=creature Crsh=crash_&_debris Dsgn=designed
Elec=electric Elem=elemental Emrg=emergency Ethr=ethereal Expr=experimental Fric=friction Glas=glass Grdn=garden
Hdwr=hardware Hist=historical Hmn=human Hndl=handle Hors=horse Hydr=hydraulic_&_pneumatic Impt=impact Ind=industrial
Insc=insect Int=interior Knck=knock Laff=laugh Lrg=large Mach=machine Mech=mechanism Med=medical Metl=metal
Mil=military Mvmt=movement Offc=office Plas=plastic Prisn=prison Race=racing Reac=reaction Rec=recreational Sing=singing
Sirn=siren Sprt=sport Srce=source Stm=steam Stngr=stinger Swsh=swish Tech=hitech Tonl=tonal Trop=tropical
Turb=turbulent Undwtr=underwater Vege=vegetation Veh=vehicle Vox=vocal Watr=water Whsh=whoosh
"""

# A category a line: its code, its name, the endings of its ids.
_CATEGORIES = """
AIR air: Blow Brst Hiss Misc Suck=suction
AERO aircraft: Door Heli=helicopter Int Jet Mech Mil Misc Prop Radio=radio_controlled Rckt=rocket
ALRM alarms: Bell Buzr=buzzer Clok=clock Elec=electronic Misc Sirn
AMB ambience: Air Alpn=alpine Amus Bird=birdsong Cele Cnst Dsrt=desert Dsgn Emrg Fant=fantasy Farm Forst=forest
AMB ambience: Gras=grassland Hist Tech Hosp=hospital Ind Insc Lake=lakeside Mrkt=market Misc Naut=nautical Offc Park
AMB ambience: Prisn Prtst=protest Publ=public_place Rlgn=religious Home=residential Rest=restaurant_&_bar
AMB ambience: Room=room_tone Rurl=rural Schl=school Sci=scifi Sea=seaside Sprt Subn=suburban Swmp=swamp Town
AMB ambience: Traf=traffic Tran=transportation Trop Tndra=tundra Undr=underground Undwtr Urbn=urban War=warfare
ANML animals: Amph=amphibian Aqua Bat Cat=cat_domestic Wcat=cat_wild Dog Wdog=dog_wild Farm Hors Insc Misc
ANML animals: Prim=primate Rept=reptile Rdnt=rodent Wild
BEEP beeps: Appl Lofi Med Timer Veh
BELL bells: Anml Door=doorbell Gong Hand=handbell Lrg Misc
BIRD birds: Prey=bird_of_prey Crow Fowl Misc Sea Song=songbird Trop Wade=wading
BOAT boats: Air=air_boat Wash=bow_wash Door Elec Fish=fishing Horn Int Mech Mil Misc Motr=motorboat Race Row=rowboat
BOAT boats: Sail=sailboat Ship Stm Sub=submarine Undwtr
BLLT bullets: By Impt Misc Rico=ricochet Shel=shell
TOON cartoon: Anml Boing Clang Creak Horn Impt Mach Misc Mx=musical Pluk=pluck Pop Shake Splt=splat Sqk=squeak
TOON cartoon: Strch=stretch Swsh Twang Veh Vox Warb=warble Whis=whistle Zip
CERM ceramics: Brk Crsh Fric Hndl Impt Misc Mvmt Tonl
CHAIN chains: Brk Hndl Impt Misc Mvmt
CHEM chemicals: Acid Misc Reac
CLOCK clocks: Chim Mech=mechanics Misc Tick
CLOTH cloth: Flp=flap Hndl Impt Misc Mvmt Rip
COM communications: Av Cam=camera Cell=cellphone Mic=microphone Misc Phono=phonograph Radio Static Telm=telemetry
COM communications: Telph=telephone Tv=television Tran=transceiver Type=typewriter
CMPT computers: Driv=hard_drive Key=keyboard_&_mouse Misc
CREA creatures: Aqua Avian Beast Blob Dino=dinosaur Drgn=dragon Elem Ethr Hmn=humanoid Insc=insectoid Misc
CREA creatures: Mnstr=monster Rept=reptilian Small Srce
CRWD crowds: Angr=angry Apls=applause Batl=battle Cele Cheer=cheering Chld=children Conv=conversation Laff=laughter
CRWD crowds: Loop=loop_group Misc Panic Quiet Reac Sing Sprt Walla
DSGN designed: Bass=bass_dive Boom Bram=braam Dist=distortion Dron=drone Erie=eerie Ethr Gran=granular Impt Misc
DSGN designed: Morph Rise=riser Rmbl=rumble Rythm=rhythmic Srce Stngr Synth=synthetic Tonl Vocl=vocal Whsh
DESTR destruction: Clpse=collapse Crsh Misc
DIRT dirt_&_sand: Crsh Dust Hndl Impt Misc Mvmt Tonl
DOOR doors: Antq Appl Cab=cabinet Comp=composite Creak Dungn=dungeon Elec Gate Glas Hdwr Tech Hydr Knck Metl Misc
DOOR doors: Plas Prisn Revl=revolving Slid=sliding Ston=stone Swng=swinging Wood
DRWR drawers: Metl Misc Plas Wood
ELEC electricity: Arc Buzz=buzz_&_hum Emf=electromagnetic Misc Sprk=sparks Zap
EQUIP equipment: Bridle=bridle_&_tack Tech Misc Rec Sprt Tact=tactical
EXPL explosions: Dsgn Misc Real
FART farts: Dsgn Misc Real
FGHT fight: Bf=bodyfall Clth Grab Impt Misc
FIRE fire: Burn=burning Brst Crkl=crackle Gas Ign=ignite Misc Sizz=sizzle Trch=torch Turb Whsh
FRWK fireworks: Comr=commercial Misc Rec
FOLY foley: Clth Feet Hand=hands Misc Prop
FOOD food_&_drink: Cook=cooking Drnk=drinking Eat=eating Gware=glassware Ingr=ingredients Kware=kitchenware Misc
FOOD food_&_drink: Pour Tware=tableware
FEET footsteps: Anml Crea Hors Hmn Misc
GAME games: Arcd=arcade Board Cas=casino Misc Video
GEO geothermal: Fuma=fumarole Geyser Lava Misc Mudpot=mud_pots
GLAS glass: Brk Crsh Fric Hndl Impt Misc Mvmt Tonl
GORE gore: Blood Bone Burn Flsh=flesh Misc Ooze Srce Splt=splat Sqsh=squish Stab
GUN guns: Antq Artl=artillery Auto=automatic Cano=cannon Hndl Tech Mech Misc Pis=pistol Rif=rifle Shotg=shotgun
GUN guns: Supr=suppressed
HORN horns: Air=air_powered Cele Misc Trad=traditional
HMN human: Blow Brth=breath Burp Cough Hart=heartbeat Kiss Misc Pee Skin Sneez=sneeze Sniff Snor=snore Spit Vomit
ICE ice: Brk Crsh Fric Hndl Impt Misc Mvmt Tonl
LASR lasers: Beam Gun Impt Misc
LETHR leather: Creak Hndl Impt Misc Mvmt
LIQ liquid_&_mud: Bubl Impt Misc Mvmt Suct=suction
MACH machines: Amus Antq Appl Cnst Elev=elevator Escl=escalator Fan Grdn Gym Tech Hvac Ind Mech Med Misc Offc Pump
MAG magic: Angl=angelic Elem Evil Misc Poof Shim=shimmer Spel=spell
MECH mechanical: Clik=click Gear=gears Hydr Ltch=latch Lvr=lever Lock Misc Puly=pulley Rtch=ratchet Relay Rolr=roller
MECH mechanical: Swtch=switch
METL metal: Brk Crsh Fric Hndl Impt Misc Mvmt Tonl
MOTR motors: Antq Comb=combustion Elec Misc Srvo=servo Turb=turbine
MOVE movement: Actv=activity Anml Crea Crwd=crowd Hmn Insc Misc Pres=presence
MUSC musical: Bell=bells Brass Chim Chor=choral Expr Inst=instrument Keyd=keyed Loop Misc Perc=percussion
MUSC musical: Tnprc=percussion_tuned Prfm=performance Pluck=plucked Smpl=sample Shake=shaken Song=song_&_phrase Stngr
MUSC musical: Str=stringed Synth=synthesized Toy Wind=woodwind
NATD natural_disaster: Aval=avalanche Quak=earthquake Misc Torn=tornado Tsun=tsunami Thyp=typhoon Volc=volcano
OBJ objects: Bag Book Coin Cont=container Fash=fashion Furn=furniture Grdn Gym Hsehld=household Jewl=jewelry Key=keys
OBJ objects: Lug=luggage Med Misc Offc Pack=packaging Tape Umbr=umbrella Whled=wheeled Write=writing Zipr=zipper
PAPR paper: Fltr=flutter Fric Hndl Impt Misc Rip Tonl
PLAS plastic: Brk Crsh Fric Hndl Impt Misc Mvmt Tonl
RAIN rain: Clth Conc=concrete Glas Int Metl Plas Vege Watr Wood
ROBT robots: Misc Mvmt Vox
ROCK rocks: Brk Crsh Fric Hndl Impt Misc Mvmt Tonl
ROPE rope: Creak Hndl Impt Misc Mvmt
RUBR rubber: Crsh Fric Hndl Impt Misc Mvmt Tonl
SCI scifi: Alrm Cmpt=computer Door Enrg=energy Impt Mach Mech Misc Retro Ship=spaceship Veh Weap=weapon
SNOW snow: Crsh Fric Hndl Impt Misc Mvmt
SPRT sports: Court Field Gym Indor=indoor Misc Skate Trck=track_&_field Watr Wntr=winter
TOOL tools: Grdn Hand Misc Pneu=pneumatic Powr=power
TOY toys: Elec=electronic Mech=mechanical Misc
TRN trains: Brake Clak=clack Door Diesl=diesel Elec Hspd=high_speed Horn Int Mech Misc Steam Sbwy=subway Tram
UI user_interface: Alert Beep Click Data Glitch Misc Mvmt=motion
VEGE vegetation: Gras=grass Leaf=leaves Misc Tree
VEH vehicles: Alrm Antq Atv Bike=bicycle Brake Bus Car Cnst Door Elec Emrg Farm Frght=freight By=generic_by Horn Int
VEH vehicles: Jalop=jalopy Mech Mil Misc Moto=motorcycle Race Sirn Skid Susp=suspension Tire Truck=truck_van_&_suv
VEH vehicles: Util=utility Wagn=wagon Wndw=window
VOX voices: Alien Baby Cheer Chld=child Cry=crying Efrt=efforts Fem=female Futz=futzed Hist Laff Male Misc Reac
VOX voices: Scrm=scream Sing Whsp=whisper
WATR water: Bubl Dran=drain Drip Fizz Flow Foun=fountain Impt Lap Misc Mvmt Plmb=plumbing Pour Splsh=splash Spray Stm
WATR water: Surf Turb Undwtr Fall=waterfall Wave
WEAP weapons: Armr=armor Arro=arrow Axe Blnt=blunt Bow Knif=knife Misc Pole=polearm Siege Swrd=sword Whip
WHST whistles: Hmn Mech=mechanical Misc
WIND wind: Dsgn Gust Int Tonl Turb Vege
WNDW windows: Cover=covering Hdwr Knck Metl Misc Plas Wood
WING wings: Bird Crea Insc Misc
WOOD wood: Brk Crsh Fric Handl=handle Impt Misc Mvmt Tonl
"""

# Ids without an ending: what they stand for.
_WHOLE = """
archived: ADR=adr ASSET=asset BNCE=bounce IR=impulse_response LPGRP=loop_group MIX=mix PFX=pfx PROD=production RAW=raw
archived: REF=reference SCNE=scene TEST=test_tone TMARK=trademarked WIP=work_in_progress WTF=wtf
beeps: BEEP=general
rain: RAIN=general
swooshes: SWSH=swish WHSH=whoosh
weather: HAIL=hail WTHR=misc STORM=storm THUN=thunder
wind: WIND=general
"""

SAYS_NOTHING = ("misc", "general")
"""Subcategories that are no word of a sound."""


def category_of(name: str) -> tuple[str, ...]:
    """Category and subcategory of the id with which a file's name begins, lower case; empty where it begins with none.

    An id is followed by `_` or `-`, or by no letter at all where it is one of the list (`DOORWood 01`); one without an
    ending (`MIX`, `TEST`) counts only in a name of all four parts, since such words stand at the front of other names
    too.
    """
    found = re.match(r"[A-Z]{2,5}([A-Z][a-z]{1,6})?(?![^\W\d_])", name)
    if found is None or (found[1] is None and name.count("_") < 3):
        return ()
    cat_id, apart = found[0], name[found.end() :].startswith(("_", "-"))
    return category_of_id(cat_id) if apart or (found[1] and cat_id in ids()) else ()


def category_of_id(cat_id: str) -> tuple[str, ...]:
    """Category and subcategory of an id, lower case; the subcategory is left out where it says nothing."""
    listed: tuple[str, ...] = ids().get(cat_id) or _of_code(cat_id)
    return tuple(part for part in listed if part not in SAYS_NOTHING)


def _of_code(cat_id: str) -> tuple[str, ...]:
    """Of an id that is not listed: its category and its ending, where it has the form of one."""
    found = re.fullmatch(r"([A-Z]{2,5})([A-Z][a-z]{2,5})", cat_id)
    category = _codes().get(found[1]) if found else None
    return (category, _endings().get(found[2], found[2].lower())) if found and category else ()


@lru_cache(maxsize=1)
def ids() -> dict[str, tuple[str, str]]:
    """Category and subcategory, lower case, of every id of the list."""
    found = {}
    for line in _CATEGORIES.strip().splitlines():
        head, _, endings = line.partition(": ")
        code, category = head.split()
        for ending, told in _pairs(endings):
            found[code + ending] = (_spaced(category), told or _endings().get(ending, ending.lower()))
    for line in _WHOLE.strip().splitlines():
        category, _, whole = line.partition(": ")
        found.update({cat_id: (category, told) for cat_id, told in _pairs(whole)})
    return found


@lru_cache(maxsize=1)
def _codes() -> dict[str, str]:
    heads = (line.partition(": ")[0].split() for line in _CATEGORIES.strip().splitlines())
    return {code: _spaced(category) for code, category in heads}


@lru_cache(maxsize=1)
def _endings() -> dict[str, str]:
    return dict(_pairs(_ENDINGS))


def _pairs(text: str) -> list[tuple[str, str]]:
    """What stands before `=` and behind it, of each part."""
    parts = (part.partition("=") for part in text.split())
    return [(part, _spaced(told)) for part, _, told in parts]


def _spaced(text: str) -> str:
    return text.replace("_", " ")
