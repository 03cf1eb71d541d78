"""
The published biLMs: what is known of each, and how to load it. `elmo models` and docs/models.md print this.

Facts are those of the pages that `SOURCES` names, and of public code that uses the models. `None` and "" are
what was found nowhere. No address was opened when this list was made.
"""

from typing import List, NamedTuple, Optional, Tuple


class Source(NamedTuple):
    """
    Who published models.

    # Parameters

    title : `str`
        The publisher.
    page : `str`
        The address of the page that describes the models.
    license : `str`
        The licence as its page states it; "" where none was found.
    how : `str`
        How to load its models, where the line alone does not say so, and what cannot be loaded.
    """

    title: str
    page: str
    license: str
    how: str


class PublishedModel(NamedTuple):
    """
    A published biLM.

    # Parameters

    name : `str`
        A short name, of this list only.
    language : `str`
        In English.
    source : `str`
        A key of `SOURCES`.
    text : `str`
        What it was trained on.
    addresses : `Tuple[str, ...]`
        As published: options and weights, or one archive.
    options : `str`
        The options of `elmo embed` that load it; "" if this version cannot.
    width : `int`, optional
        Of a layer, both directions together.
    parameters : `float`, optional
        In millions, without the softmax.
    """

    name: str
    language: str
    source: str
    text: str
    addresses: Tuple[str, ...]
    options: str
    width: Optional[int] = None
    parameters: Optional[float] = None

    @property
    def unchecked(self) -> str:
        """What is not known of it: it was found nowhere, or nothing here could check it."""
        missing = {
            "width": self.width,
            "size": self.parameters,
            "licence": SOURCES[self.source].license,
        }
        return ", ".join(["address", *(what for what, known in missing.items() if not known)])


SOURCES = {
    "ai2": Source(
        title="Allen Institute for AI",
        page="https://allennlp.org/elmo",
        license="",
        how="The models of the paper, and contributed ones. Both files are downloaded once.",
    ),
    "nlpl": Source(
        title="NLPL and RusVectōrēs",
        page="http://vectors.nlpl.eu/repository/",
        license="",
        how="One .zip stands for options and weights. It is downloaded once. Models of lemmas read lemmas.",
    ),
    "embeddia": Source(
        title="EMBEDDIA, University of Ljubljana",
        page="https://www.clarin.si/repository/xmlui/handle/11356/1277",
        license="",
        how="Unpack the .tar.gz, and give the two files in it.",
    ),
    "mit": Source(
        title="Schuster et al. (2019)",
        page="https://github.com/TalSchuster/CrossLingualContextualEmb",
        license="",
        how="Save both files from their pages, and give the paths. Matrices that align the languages are on "
        "the page, too; nothing here applies them.",
    ),
    "t-systems": Source(
        title="T-Systems on site services",
        page="https://github.com/t-systems-on-site-services-gmbh/german-elmo-model",
        license="BSD-2-Clause",
        how="Join the parts of the archive as the page says, unpack it, and give the two files in it.",
    ),
    "deeppavlov": Source(
        title="DeepPavlov",
        page="https://docs.deeppavlov.ai",
        license="Apache-2.0",
        how="Modules of TensorFlow Hub, which have no options and weights: they cannot be loaded here.",
    ),
    "stockmark": Source(
        title="Stockmark",
        page="https://qiita.com/mkt3/items/9577b63900109ff91665",
        license="",
        how="The page says where the files are, in Japanese; it was not read in full. Tokens are MeCab's.",
    ),
    "hit": Source(
        title="HIT-SCIR, ELMoForManyLangs",
        page="https://github.com/HIT-SCIR/ELMoForManyLangs",
        license="",
        how="One .zip stands for all files of a model, and so does the folder that it is unpacked into. "
        "It is downloaded once. Simplified Chinese is a .tar.xz: unpack it, and give its folder.",
    ),
}

_AI2 = "https://allennlp.s3.amazonaws.com/models/elmo/"


def _two_files(options: str, weights: str) -> Tuple[Tuple[str, ...], str]:
    """Return the addresses and the options for files that are downloaded."""
    return (options, weights), f"--options-file {options} --weight-file {weights}"


def _ai2(
    name: str,
    folder: str,
    text: str,
    width: Optional[int] = None,
    parameters: Optional[float] = None,
    language: str = "English",
    options: str = "options.json",
    weights: str = "weights.hdf5",
) -> PublishedModel:
    addresses, flags = _two_files(f"{_AI2}{folder}{options}", f"{_AI2}{folder}{weights}")
    return PublishedModel(name, language, "ai2", text, addresses, flags, width, parameters)


def _nlpl(number: int, language: str, text: str, width: Optional[int] = None) -> PublishedModel:
    address = f"http://vectors.nlpl.eu/repository/20/{number}.zip"
    flags = f"--options-file {address}"
    return PublishedModel(f"nlpl-{number}", language, "nlpl", text, (address,), flags, width)


def _embeddia(language: str) -> PublishedModel:
    name = language.lower()
    address = (
        f"{SOURCES['embeddia'].page.replace('/handle/', '/bitstream/handle/')}/{name}-elmo.tar.gz"
    )
    flags = f"--options-file {name}/options.json --weight-file {name}/{name}-elmo-weights.hdf5"
    text = "see arXiv:1911.10049"
    return PublishedModel(
        f"embeddia-{name}", language, "embeddia", text, (address,), flags, width=1024
    )


def _mit(language: str, code: str, key: str) -> PublishedModel:
    dropbox = "https://www.dropbox.com/s/"
    addresses = (f"{dropbox}ypjuzlf7kj957g3/options262.json", f"{dropbox}{key}/{code}_weights.hdf5")
    flags = f"--options-file options262.json --weight-file {code}_weights.hdf5"
    return PublishedModel(f"mit-{code}", language, "mit", "Wikipedia", addresses, flags)


def _deeppavlov(name: str, text: str, file: str) -> PublishedModel:
    address = f"http://files.deeppavlov.ai/deeppavlov_data/{file}.tar.gz"
    return PublishedModel(f"deeppavlov-{name}", "Russian", "deeppavlov", text, (address,), "")


def _hit(language: str, number: int) -> PublishedModel:
    name = language.lower().replace(" ", "-").replace("å", "a")
    address = f"http://vectors.nlpl.eu/repository/11/{number}.zip"
    flags = f"--options-file {address}"
    text = "20 million words of Wikipedia and Common Crawl"
    return PublishedModel(f"hit-{name}", language, "hit", text, (address,), flags, width=1024)


_BILLION_WORDS = "1 Billion Word Benchmark"

_HIT_LANGUAGES = {
    "Arabic": 136,
    "Bulgarian": 137,
    "Catalan": 138,
    "Czech": 139,
    "Old Church Slavonic": 140,
    "Danish": 141,
    "German": 142,
    "Greek": 143,
    "English": 144,
    "Spanish": 145,
    "Estonian": 146,
    "Basque": 147,
    "Persian": 148,
    "Finnish": 149,
    "French": 150,
    "Irish": 151,
    "Galician": 152,
    "Ancient Greek": 153,
    "Hebrew": 154,
    "Hindi": 155,
    "Croatian": 156,
    "Hungarian": 157,
    "Indonesian": 158,
    "Italian": 159,
    "Japanese": 160,
    "Korean": 161,
    "Latin": 162,
    "Latvian": 163,
    "Dutch": 164,
    "Norwegian Bokmål": 165,
    "Norwegian Nynorsk": 166,
    "Polish": 167,
    "Portuguese": 168,
    "Romanian": 169,
    "Russian": 170,
    "Slovak": 171,
    "Slovenian": 172,
    "Swedish": 173,
    "Turkish": 174,
    "Uyghur": 175,
    "Ukrainian": 176,
    "Urdu": 177,
    "Vietnamese": 178,
    "Traditional Chinese": 179,
}

MODELS: List[PublishedModel] = [
    _ai2(
        "ai2-small",
        "2x1024_128_2048cnn_1xhighway/elmo_2x1024_128_2048cnn_1xhighway_",
        _BILLION_WORDS,
        width=256,
        parameters=13.6,
    ),
    _ai2(
        "ai2-medium",
        "2x2048_256_2048cnn_1xhighway/elmo_2x2048_256_2048cnn_1xhighway_",
        _BILLION_WORDS,
        width=512,
        parameters=28.0,
    ),
    _ai2(
        "ai2-original",
        "2x4096_512_2048cnn_2xhighway/elmo_2x4096_512_2048cnn_2xhighway_",
        _BILLION_WORDS,
        width=1024,
        parameters=93.6,
    ),
    _ai2(
        "ai2-5.5B",
        "2x4096_512_2048cnn_2xhighway_5.5B/elmo_2x4096_512_2048cnn_2xhighway_5.5B_",
        "5.5 billion words of Wikipedia and news",
        width=1024,
        parameters=93.6,
    ),
    _ai2(
        "ai2-pubmed",
        "contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_",
        "PubMed (biomedical)",
        width=1024,
        parameters=93.6,
        weights="weights_PubMed_only.hdf5",
    ),
    _ai2("ai2-portuguese", "contributed/pt/elmo_pt_", "", language="Portuguese"),
    _ai2(
        "ai2-portuguese-brwac",
        "contributed/pt/brwac/",
        "brWaC (web)",
        language="Portuguese",
        weights="elmo_pt_weights_dgx1.hdf5",
    ),
    _nlpl(209, "English", "Wikipedia", width=1024),
    _nlpl(201, "German", ""),
    _nlpl(203, "Latin", ""),
    _nlpl(202, "Swedish", ""),
    _nlpl(210, "Norwegian", "Wikipedia of 2020, lemmas"),
    _nlpl(211, "Norwegian", "Wikipedia of 2020"),
    _nlpl(217, "Norwegian", "Wikipedia and newspapers (NorELMo30)"),
    _nlpl(218, "Norwegian", "Wikipedia and newspapers (NorELMo100)"),
    _nlpl(195, "Russian", "Russian National Corpus and Wikipedia"),
    _nlpl(196, "Russian", "Russian National Corpus and Wikipedia, lemmas"),
    _nlpl(199, "Russian", "Taiga, lemmas"),
    _nlpl(212, "Russian", "Araneum, lemmas"),
    _embeddia("Croatian"),
    _embeddia("Estonian"),
    _embeddia("Finnish"),
    _embeddia("Latvian"),
    _embeddia("Lithuanian"),
    _embeddia("Slovenian"),
    _embeddia("Swedish"),
    _mit("English", "en", "1h62kc1qdcuyy2u"),
    _mit("French", "fr", "mm64goxb8wbawhj"),
    _mit("German", "de", "2kbjnvb12htgqk8"),
    _mit("Italian", "it", "owfou7coi04dyxf"),
    _mit("Portuguese", "pt", "ul82jsal1khfw5b"),
    _mit("Spanish", "es", "ygfjm7zmufl5gu2"),
    _mit("Swedish", "sv", "boptz21zrs4h3nw"),
    PublishedModel(
        name="t-systems-german",
        language="German",
        source="t-systems",
        text="963 million words of Wikipedia, with its comments",
        addresses=(SOURCES["t-systems"].page,),
        options="--options-file options.json --weight-file weights.hdf5",
    ),
    _deeppavlov("wiki", "386 million words of Wikipedia", "elmo_ru-wiki_600k_steps"),
    _deeppavlov("news", "946 million words of news", "elmo_ru-news_wmt11-16_1.5M_steps"),
    _deeppavlov(
        "twitter", "810 million words of Twitter", "elmo_ru-twitter_2013-01_2018-04_600k_steps"
    ),
    PublishedModel(
        name="stockmark-japanese",
        language="Japanese",
        source="stockmark",
        text="business news",
        addresses=(SOURCES["stockmark"].page,),
        options="",
    ),
    *(_hit(language, number) for language, number in _HIT_LANGUAGES.items()),
    PublishedModel(
        name="hit-simplified-chinese",
        language="Simplified Chinese",
        source="hit",
        text="Xinhua news of Gigaword",
        addresses=("http://pbmpb9h15.bkt.gdipper.com/zhs.model.tar.xz",),
        # The folder that the archive is unpacked into.
        options="--options-file zhs.model",
        width=1024,
    ),
]


def matching(word: str) -> List[PublishedModel]:
    """Return the models whose name or language has this word, in any case."""
    return [model for model in MODELS if word.lower() in f"{model.name} {model.language}".lower()]


def languages() -> List[str]:
    """Return the languages of all models, sorted."""
    return sorted({model.language for model in MODELS})
