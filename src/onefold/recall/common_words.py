"""Words of a question that say nothing of what is looked for: who, was, the, did. A query's language is known by them.

Without case and accents, as an index has words. They only decide what weighs nothing in a query and which stemmers are
used; no list has to be complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from onefold.recall.tokenizer import folded

_COMMON = {
    "english": (
        "a about after again all also am an and any are as at be because been before being between both but by can "
        "could did do does doing done during each ever few for from further get gets getting got had has have having "
        "he her here hers him his how i if in into is it its itself just kind let like many me might more most much "
        "must my myself no nor not of off on once only or other our ours out over own please same shall she should "
        "show so some such tell than that the their theirs them then there these they this those through to too under "
        "until up upon us use very was we were what when where whether which while who whom whose why will with would "
        "you your yours don't didn't doesn't isn't wasn't weren't won't can't couldn't shouldn't wouldn't i'm you're "
        "it's that's what's where's who's i've you've we've i'd i'll you'll don didn doesn isn wasn"
    ),
    "german": (
        "aber alle allem allen aller alles als also am an auch auf aus bei bevor bin bis bist da damit dann das dass "
        "dein deine dem den denn der des dich die dies diese diesem diesen dieser dieses dir doch dort du durch ein "
        "eine einem einen einer eines er es etwas euch euer fur gab gegen gewesen hab habe haben hat hatte hatten "
        "hier hinter ich ihm ihn ihnen ihr ihre im in ins ist ja jede jeder jedes jetzt kann konnen kein keine machen "
        "mein meine mich mir mit muss nach nachdem nicht nichts noch nun nur ob oder ohne sehr sein seine sich sie "
        "sind so soll sollen sondern uber um und uns unser unter vom von vor wann war waren warum was weil welche "
        "welchem welchen welcher welches wem wen wenn wer werde werden wessen wie wieder wieso wir wird wo wurde "
        "wurden zu zum zur zwischen"
    ),
    "french": (
        "a ai au aux avait avant avec avez avoir avons c ce cela ces cet cette ceux chez comme comment d dans de "
        "depuis des donc dont du elle elles en encore entre es est et etaient etait ete etes etre eu fait faire fut "
        "ici il ils j je l la le les leur leurs lors lui m ma mais me mes mon n ne nos notre nous on ont ou par pas "
        "pendant plus pour pourquoi qu quand que quel quelle quelles quels qui quoi s sa sans se sera ses si son sont "
        "sous sur t ta te tes toi ton tous tout toute tres tu un une vos votre vous y apres"
    ),
    "spanish": (
        "a al algo ante antes asi aun aunque como con cual cuales cuando cuanto cuantos de del desde despues donde "
        "dos el ella ellas ellos en entre era eran es esa ese eso esta estaba estan estar este esto estos fue fueron "
        "ha habia han has hasta hay he la las le les lo los mas me mi mis mucho muy nada ni no nos nosotros nuestra "
        "nuestro o os otra otro para pero por porque que quien quienes se sea ser si sido sin sobre solo somos son "
        "soy su sus tambien tan te tengo ti tiene tu tus un una uno unos usted ustedes y ya yo hizo hiciste hacer"
    ),
    "portuguese": (
        "a ao aos aquela aquele aquilo as ate com como da das de dela dele depois do dos e ela elas ele eles em entre "
        "era eram essa esse esta estao estava este eu foi foram ha isso isto ja la lhe mais mas me mesmo meu meus "
        "minha muito na nao nas nem no nos nossa nosso num numa o os ou para pela pelas pelo pelos por porque quais "
        "qual quando quanto que quem sao se sem ser seu seus so sobre sua suas tambem te tem tinha tu tua um uma voce "
        "voces onde fez"
    ),
    "italian": (
        "a ad agli ai al alla alle allo anche avere aveva c che chi ci come con cosa cui da dagli dai dal dalla dalle "
        "de del della delle dello di dopo dove e ed era erano essere fa fatto gli ha hai hanno ho i il in io l la le "
        "lei li lo loro lui ma me mi mia mio nei nel nella nelle no noi non o per perche piu prima quale quali quando "
        "quanto quel quella quello questa questo qui se sei si sia sono sta stata stato su sua sul sulla suo te ti "
        "tra tu tua tuo un una uno voi"
    ),
    "dutch": (
        "aan al alles als altijd bij daar dan dat de der deze die dit doch doen door dus een en er ge geen had heb "
        "hebben heeft hem het hier hij hoe hun iets ik in is ja je kan kon maar me meer men met mij mijn moet na naar "
        "niet niets nog nu of om omdat onder ons ook op over te tegen toch toen tot u uit van veel voor waar waarom "
        "wanneer want waren was wat we welke wel werd wie wij wil worden zal ze zich zij zijn zo zou jij jouw"
    ),
    "swedish": (
        "alla att av bara blev de dem den denna deras dess det detta dig din ditt du dar da efter ej eller en er ett "
        "fran for ga gjorde ha hade han hans har hon hur har i icke ingen inte jag kan kunde man med mellan men mig "
        "min mitt mot mycket nar nu nagon nagot och om oss pa samma sedan sig sin sina ska som till under upp ut vad "
        "var varfor vara vem vi vid vilka vilken vilket"
    ),
    "danish": (
        "af alle at blev da de dem den der deres det dig din disse dog du efter eller en er et for fra gjorde ham han "
        "har havde hende hendes her hos hun hvad hvem hvilken hvilket hvis hvor hvorfor hvornar i ikke ind jeg kan "
        "kunne man med meget men mig min mod nar noget nogen nu og om op os over pa sig sin skal som til ud under var "
        "ved vi vil"
    ),
    "norwegian": (
        "alle at av bare ble da de deg dem den der deres det dette din du eller en er et etter for fra gjorde ha "
        "hadde han har hennes her hun hva hvem hvilken hvilket hvor hvorfor i ikke jeg kan kunne man med meg men min "
        "mot nar noe noen na og om opp oss over pa seg sin skal som til ut var ved vi vil"
    ),
    "finnish": (
        "ei eivat ennen en ette etta han hanen he heidan ja jalkeen johon joka jos joissa jota jotka kanssa kaikki "
        "kuin kuinka kun kuka ketka kenen kenelle me meidan mika mikka mihin miksi milla milloin mina minka minun "
        "minulla missa mista mita miten mitka mutta myos mukaan ne niin niiden nyt oli olin olit olivat olla olen "
        "olet on ole ovat sen se sina sinun sinulla sita siina siita tai te teidan teki tehda tama taman tassa tasta "
        "vaan vai vain voi kaytetaan"
    ),
    "turkish": (
        "acaba ama ancak bana bazi belki ben beni benim bir biz bizim bu buna bunu bunun cok cunku da daha de degil "
        "diye en gibi hangi hangisi hem hep hepsi her hic icin ile ise kac kadar ki kim kime kimi kimin mi mu ne "
        "neden nedir nerede nereye nereden nasil niye o olan olarak oldu ona onu onun onlar sana sen seni senin siz "
        "sizin son sonra su tum uzere var vardi ve veya ya yani yaptin yapti once zaman"
    ),
    "hungarian": (
        "a abban ahhoz ahogy aki akik akkor alatt amely ami amit amikor annak arra az azok azt azutan be csak de e "
        "egy egyik el ele en es ez ezek ezt fel hanem hogy hogyan hol ide igen is ki kell kik kit le lett meg mely "
        "melyik meg mert mi miert mikor milyen mind minden mit mivel most nagyon ne nekem neki nem nincs o ok ott "
        "pedig sem ti tobb te tett utan utana vagy vagyok van vannak volt voltak"
    ),
    "polish": (
        "a aby ale bardzo bez bo by byc byl byla byli bylo byly co czego czy czym dla do gdy gdzie i ich ile im ja "
        "jak jaka jaki jakie jako je jego jej jest jestem juz kiedy komu kto ktora ktore ktorego ktorej ktory ktorych "
        "ktorym ma mi mnie moj moja mu my na nad nas nie niego niej nim o od on ona one oni ono oraz po pod przed "
        "przez przy sa sie skad sobie ta tak tam te tego tej ten to tu ty tylko tym u w was we wszystko z za ze zeby "
        "zrobil"
    ),
    "czech": (
        "a aby ale ani az bez by byl byla byli bylo byly ci co coz do ho i ja jak jaka jake jaky je jeho jej jeji "
        "jejich jen jeste ji jiz jsem jsi jsme jsou k kam kde kdo kdy kdyz ke kolik kter ktera ktere kterou ktery ma "
        "me mi mne muj my na nad nam nas ne nebo nez o od on ona oni ono pak po pod podle pred pri pro proc s se si "
        "sve ta tak take tam te ten tento to toho tom tomu tu ty u uz v vam vas ve vsak vy z za ze"
    ),
    "romanian": (
        "a acea aceasta acest acesta ai al ale am ar are as asta au avea ca cand care ce cea cel cele cine cu cum da "
        "dar de decat din dintre dupa e ea ei el ele era erau este eu fi fost i iar ii il in inainte intre isi la le "
        "li lui ma mai mea meu mi mie ne nici noi nu o or pe pentru prin sa sau se si sunt ta tau te tu un una unde "
        "unei unui va voi vom"
    ),
    "indonesian": (
        "ada adalah aku anda apa apakah atau bagaimana bagi bahwa belum berapa bisa dalam dan dapat dari dengan di "
        "dia ini itu juga kami kamu kapan karena ke kita lagi mana mengapa mereka oleh pada saat saya sebelum sesudah "
        "setelah sudah siapa tentang tetapi tidak untuk yang"
    ),
    "russian": (
        "а без бы был была были было быть в вам вас ваш весь во вот все всё вы где да для до его ее её если есть еще "
        "ещё же за зачем здесь и из или им их к как какая какие какой какую какого какое каком когда который которая "
        "которое которые которую которого котором кто куда ли мне меня мог мой моя мы на над нам нас наш не него нее "
        "нет ни них но ну о об он она они оно от перед по под после потом почему при про с со сам свой своя себя "
        "сколько так такой там тебе тебя то тоже только том ты тот твой твоя у уже чего чем что чтобы чья чей это "
        "этот эта эти эту этого этом я"
    ),
    "ukrainian": (
        "а але без був була були було бути в вам вас ви від вона вони він все всі де для до є з за зі і із й його її "
        "їх коли кому котрий ми мені мене мій на над нам нас наш не ні о об по під після при про та так також там те "
        "ти тим то тобі у хто це цей ця чи чого чому що щоб щодо як яка яке який які якого якому якої яку я"
    ),
    "greek": (
        "και το η ο οι τα των του της τον την τη στο στη στον στην στα στις με για απο που ποιο ποια ποιος ποιοι ποτε "
        "πως γιατι τι ειναι ηταν δεν δε να θα εχω εχει ειχε αυτο αυτη αυτος εγω εσυ εμεις μου σου μας σας τους τις "
        "ενα μια ενας αν οταν αφου πριν μετα οπου ως κατα αλλα"
    ),
    "arabic": (
        "ان انا انت انتم انه او اي اين الى التي الذي الذين ايضا بعد بعض بل بين تلك ثم حتى حول حين خلال ذلك ربما سوف "
        "على عليه عليها عن عند عندما غير في فيه فيها قبل قد كان كانت كل كم كما كيف لا لكن لم لماذا لن له لها لي ليس "
        "ما ماذا مع متى من منه منها منذ نحن نعم هذا هذه هل هم هنا هناك هو هي وما ومن وهو وهي يا يكون"
    ),
    "persian": (
        "از است اما ان انها او اي ايا اين اگر با باز بر براي بعد بود بودند به تا تو توسط چرا چه چگونه چند خود در را "
        "شد شده شما كه که کجا کدام کرد کردم کردی کسی کی ما من می نه نیز هر هم و ولی پس پیش"
    ),
    "hebrew": (
        "אבל או אותה אותו אותי אותך אחרי איזה איזו אילו איך אין איפה אל אלה אם אני אנחנו אנו אצל אשר את אתה אתם אתן "
        "באיזה בו בה בין גם ה הוא היא היה היו הייתה היתה הם הן זאת זה זו יש כאשר כבר כי כל כמה כמו כן כדי כש לא לאיזה "
        "לה להם לו לי לך לכם לנו לפני למה מאיפה מאיזה מה מהו מהי מי מתי מן נגד על עד עוד עכשיו עם פה רק של שלה שלו "
        "שלי שלך שלנו שם"
    ),
    "hindi": (
        "और अगर अपना अपनी अपने अब आप आपका आपकी आपके आपने इस इसका इसकी इसके इसे इन उस उसका उसकी उसके उसने उसे उन उनका "
        "उनके एक ऐसा ओर कब कर करता करते करना करने कहा कहाँ कहां का कि किस किसका किसकी किसके किसने किसी किसे की कितना "
        "कितनी कितने के को कोई कौन कौनसा कौनसी क्या क्यों गया गई गए जब जिस जिसे जो तक तब तुम तुमने तुम्हारा तो था थी "
        "थे दिया द्वारा नहीं ने पर पहले फिर बाद भी मुझे में मेरा मेरी मेरे मैं मैंने यह या ये रहा रही रहे लिए वह वहाँ "
        "वे वो सब साथ से हम हमने हमारा ही हुआ हुई हुए है हैं हो होता होती होने"
    ),
}
_PLAIN = {language: frozenset(folded(text).split()) for language, text in _COMMON.items()}
COMMON: frozenset[str] = frozenset().union(*_PLAIN.values())
_SCRIPTS = {
    "greek": ("\u0370", "\u03ff"),
    "russian": ("\u0400", "\u04ff"),
    "armenian": ("\u0530", "\u058f"),
    "hebrew": ("\u0590", "\u05ff"),
    "arabic": ("\u0600", "\u06ff"),
    "hindi": ("\u0900", "\u097f"),
    "tamil": ("\u0b80", "\u0bff"),
}
LATIN = (
    "english", "german", "french", "spanish", "portuguese", "italian", "dutch", "swedish", "finnish", "turkish",
    "hungarian", "polish",
)  # fmt: skip
"""The languages in Latin letters that are taken for possible when nothing tells."""


def languages(said: Iterable[str]) -> tuple[str, ...]:
    """The languages that the words of a query in Latin letters may be of, by their common words; if those do not tell,
    the usual ones. English is always among them: programs speak it."""
    known = Counter(name for word in said for name, common in _PLAIN.items() if word in common)
    if not known:
        return LATIN
    most = max(known.values())
    likely = [name for name, count in known.items() if count * 3 >= most * 2]
    return tuple(dict.fromkeys(("english", *likely)))


def script(word: str) -> str | None:
    """The language whose stemmer fits a word's script; None for Latin letters."""
    first = word[0]
    return next((name for name, (low, high) in _SCRIPTS.items() if low <= first <= high), None)
