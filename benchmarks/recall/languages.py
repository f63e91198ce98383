"""What generated conversations are made of, in eight languages.

A subject has two forms: as it is said, and as it is asked for. A matter is what may be said of a subject; it is said,
asked in the conversation, and asked again later in other forms (`later`) or in other words (`others`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Matter:
    said: str
    """A sentence with {s}, the subject, and {v}, a value."""
    asked: str
    """A question in the conversation, with {s}."""
    later: str
    """The same question after a long time, in other forms, with {q}: the subject as it is asked for."""
    topic: str
    """A message that brings up the matter in the words of `others`, without the subject."""
    others: str
    """The question in other words than `said`, with {q}."""


@dataclass(frozen=True, slots=True)
class Language:
    name: str
    stemmer: str | None
    subjects: tuple[tuple[str, str], ...]
    matters: tuple[Matter, ...]
    answers: tuple[str, ...]
    """Short ones, with {v}: they repeat nothing of the question."""
    opinions: tuple[str, ...]
    """Of people, with {s}."""
    who_said: str
    """With {n}, a name, and {q}."""
    when_said: str
    """With {m}, a month, and {q}."""
    printed: str
    """What a program printed, with {f}, the words of its name."""
    changed_after: str
    """Which file was changed after the tests of {q} failed."""
    run: str
    """Says that the tests of {s} are run."""
    fillers: tuple[str, ...]
    """Some with {s}."""
    months: tuple[str, ...]
    """January to June, as they are asked for."""


ENGLISH = Language(
    "English",
    "english",
    (
        ("invoices", "invoicing"),
        ("the shipments", "shipping"),
        ("the backups", "backup"),
        ("our subscriptions", "subscription"),
        ("the notifications", "notifying"),
        ("the translations", "translated texts"),
        ("the reservations", "reserving"),
        ("the payments", "paying"),
        ("the warehouses", "warehouse"),
        ("the recommendations", "recommending"),
    ),
    (
        Matter(
            "{s} are stored in {v} from now on.",
            "Where should {s} be stored?",
            "where did we decide to store {q}",
            "One more thing about the database choice.",
            "which database holds {q}",
        ),
        Matter(
            "{v} takes care of {s} until summer.",
            "Who takes care of {s}?",
            "who was caring for {q}",
            "We still need to name a responsible person.",
            "person responsible for {q}",
        ),
        Matter(
            "{s} get checked every {v} minutes.",
            "How often are {s} checked?",
            "how frequently do we check {q}",
            "Let us settle the polling interval.",
            "polling interval of {q}",
        ),
        Matter(
            "{s} broke because of {v}.",
            "Why did {s} break?",
            "what was breaking {q}",
            "I looked for the root cause of the outage.",
            "cause of the outage of {q}",
        ),
    ),
    ("Let us take {v}.", "{v}, I would say.", "It is {v}, as far as I know.", "That would be {v}."),
    (
        "I think {s} deserve a second look before we go on.",
        "Honestly, {s} look fine to me.",
        "With {s} I would wait for another week.",
        "I am worried about {s}, the numbers are odd.",
    ),
    "what did {n} think about {q}",
    "what was said about {q} in {m}",
    "what did {f} print when it ran",
    "the file you changed after the tests of {q} failed",
    "I am running the tests of {s} now.",
    (
        "Okay, go on.",
        "Thanks, that helps a lot.",
        "Let me look at the logs first.",
        "I have cleaned up the imports.",
        "The meeting about {s} was moved.",
        "Can you give me a short overview of {s}?",
        "The linter is happy again.",
        "I need a coffee before we go on.",
        "There is nothing new about {s} today.",
        "Please keep the commits small.",
        "Which version do we use at the moment?",
        "We should write down what we decided about {s}.",
        "The database is slow today.",
        "Who is going to check the build?",
        "The outage of yesterday is over.",
    ),
    ("January", "February", "March", "April", "the month of May", "June"),
)
GERMAN = Language(
    "German",
    "german",
    (
        ("die Rechnungen", "Rechnung"),
        ("die Lieferungen", "Lieferung"),
        ("die Sicherungen", "Sicherung"),
        ("die Abonnements", "Abonnement"),
        ("die Benachrichtigungen", "Benachrichtigung"),
        ("die Übersetzungen", "Übersetzung"),
        ("die Buchungen", "Buchung"),
        ("die Zahlungen", "Zahlung"),
        ("die Lager", "Lagers"),
        ("die Empfehlungen", "Empfehlung"),
    ),
    (
        Matter(
            "{s} speichern wir ab jetzt in {v}.",
            "Wo sollen {s} gespeichert werden?",
            "wo wurde jede {q} gespeichert",
            "Noch etwas zur Auswahl der Datenbank.",
            "welche Datenbank enthält {q}",
        ),
        Matter(
            "Um {s} kümmert sich {v} bis zum Sommer.",
            "Wer kümmert sich um {s}?",
            "wer hat sich um {q} gekümmert",
            "Wir müssen noch einen Verantwortlichen benennen.",
            "Verantwortlicher für {q}",
        ),
        Matter(
            "{s} werden alle {v} Minuten geprüft.",
            "Wie oft prüfen wir {s}?",
            "wie häufig wurde {q} geprüft",
            "Legen wir das Intervall der Abfragen fest.",
            "Intervall der Abfrage für {q}",
        ),
        Matter(
            "Wegen {v} sind {s} ausgefallen.",
            "Warum sind {s} ausgefallen?",
            "weshalb fällt {q} aus",
            "Ich habe die Ursache der Störung gesucht.",
            "Ursache für die Störung bei {q}",
        ),
    ),
    ("Nehmen wir {v}.", "{v}, würde ich sagen.", "Soweit ich weiß, {v}.", "Das wäre {v}."),
    (
        "Ich glaube, {s} sollten wir uns noch einmal ansehen.",
        "Ehrlich gesagt sehen {s} gut aus.",
        "Mit {s} würde ich noch eine Woche warten.",
        "{s} machen mir Sorgen, die Zahlen sind seltsam.",
    ),
    "was meinte {n} zu {q}",
    "was wurde im {m} zu {q} gesagt",
    "was hat {f} beim Lauf ausgegeben",
    "welche Datei hast du geändert, nachdem die Tests der {q} fehlschlugen",
    "Ich lasse jetzt die Tests für {s} laufen.",
    (
        "Gut, mach weiter.",
        "Danke, das hilft sehr.",
        "Ich sehe zuerst in die Protokolle.",
        "Ich habe die Importe aufgeräumt.",
        "Die Besprechung über {s} wurde verschoben.",
        "Gibst du mir einen kurzen Überblick über {s}?",
        "Der Linter ist zufrieden.",
        "Ich brauche erst einen Kaffee.",
        "Über {s} gibt es heute nichts Neues.",
        "Bitte halte die Commits klein.",
        "Welche Version benutzen wir gerade?",
        "Wir sollten aufschreiben, was wir über {s} beschlossen haben.",
        "Die Datenbank ist heute langsam.",
        "Wer prüft den Build?",
        "Die Störung von gestern ist vorbei.",
    ),
    ("Januar", "Februar", "März", "April", "Mai", "Juni"),
)
SPANISH = Language(
    "Spanish",
    "spanish",
    (
        ("las facturas", "factura"),
        ("los envíos", "envío"),
        ("las copias", "copia"),
        ("las suscripciones", "suscripción"),
        ("las notificaciones", "notificación"),
        ("las traducciones", "traducción"),
        ("las reservas", "reserva"),
        ("los pagos", "pago"),
        ("los almacenes", "almacén"),
        ("las recomendaciones", "recomendación"),
    ),
    (
        Matter(
            "Desde ahora {s} se guardan en {v}.",
            "¿Dónde guardamos {s}?",
            "dónde se guardaba cada {q}",
            "Otra cosa sobre la elección de la base de datos.",
            "qué base de datos contiene {q}",
        ),
        Matter(
            "{v} se encarga de {s} hasta el verano.",
            "¿Quién se encarga de {s}?",
            "quién se encargaba de {q}",
            "Todavía falta nombrar a un responsable.",
            "persona responsable de {q}",
        ),
        Matter(
            "{s} se revisan cada {v} minutos.",
            "¿Cada cuánto revisamos {s}?",
            "con qué frecuencia se revisaba {q}",
            "Fijemos el intervalo de consulta.",
            "intervalo de consulta de {q}",
        ),
        Matter(
            "{s} fallaron por culpa de {v}.",
            "¿Por qué fallaron {s}?",
            "por qué fallaba {q}",
            "He buscado la causa de la avería.",
            "causa de la avería de {q}",
        ),
    ),
    ("Tomemos {v}.", "Yo diría que {v}.", "Que yo sepa, {v}.", "Sería {v}."),
    (
        "Creo que {s} merecen otra mirada antes de seguir.",
        "La verdad, {s} me parecen bien.",
        "Con {s} yo esperaría otra semana.",
        "Me preocupan {s}, los números son raros.",
    ),
    "qué opinaba {n} de {q}",
    "qué se dijo en {m} sobre {q}",
    "qué imprimió {f} al ejecutarse",
    "el archivo que cambiaste después de que fallaron las pruebas de {q}",
    "Ejecuto ahora las pruebas de {s}.",
    (
        "Vale, sigue.",
        "Gracias, eso ayuda mucho.",
        "Primero miro los registros.",
        "He ordenado las importaciones.",
        "La reunión sobre {s} se aplazó.",
        "¿Me das un resumen breve de {s}?",
        "El linter está contento.",
        "Necesito un café antes de seguir.",
        "Hoy no hay nada nuevo sobre {s}.",
        "Por favor, haz commits pequeños.",
        "¿Qué versión usamos ahora?",
        "Deberíamos anotar lo que decidimos sobre {s}.",
        "La base de datos va lenta hoy.",
        "¿Quién revisa la compilación?",
        "La avería de ayer ya pasó.",
    ),
    ("enero", "febrero", "marzo", "abril", "mayo", "junio"),
)
FRENCH = Language(
    "French",
    "french",
    (
        ("les factures", "facture"),
        ("les livraisons", "livraison"),
        ("les sauvegardes", "sauvegarde"),
        ("les abonnements", "abonnement"),
        ("les notifications", "notification"),
        ("les traductions", "traduction"),
        ("les réservations", "réservation"),
        ("les paiements", "paiement"),
        ("les entrepôts", "entrepôt"),
        ("les recommandations", "recommandation"),
    ),
    (
        Matter(
            "Désormais {s} sont stockées dans {v}.",
            "Où faut-il stocker {s}?",
            "où stockait-on chaque {q}",
            "Encore un mot sur le choix de la base de données.",
            "quelle base de données contient {q}",
        ),
        Matter(
            "{v} s'occupe de {s} jusqu'à l'été.",
            "Qui s'occupe de {s}?",
            "qui s'occupait de {q}",
            "Il reste à nommer une personne responsable.",
            "personne responsable de {q}",
        ),
        Matter(
            "On vérifie {s} toutes les {v} minutes.",
            "Quand vérifie-t-on {s}?",
            "à quel rythme vérifiait-on {q}",
            "Fixons l'intervalle de consultation.",
            "intervalle de consultation pour {q}",
        ),
        Matter(
            "{s} sont tombées à cause de {v}.",
            "Pourquoi {s} sont tombées?",
            "pourquoi {q} tombait",
            "J'ai cherché l'origine de la panne.",
            "origine de la panne de {q}",
        ),
    ),
    ("Prenons {v}.", "{v}, je dirais.", "Autant que je sache, {v}.", "Ce serait {v}."),
    (
        "Je crois que {s} méritent un second regard.",
        "Franchement, {s} me semblent bien.",
        "Pour {s}, j'attendrais encore une semaine.",
        "Je m'inquiète pour {s}, les chiffres sont bizarres.",
    ),
    "que pensait {n} de {q}",
    "qu'a-t-on dit en {m} sur {q}",
    "qu'a affiché {f} à l'exécution",
    "le fichier que tu as modifié après l'échec des tests de {q}",
    "Je lance maintenant les tests pour {s}.",
    (
        "D'accord, continue.",
        "Merci, ça aide beaucoup.",
        "Je regarde d'abord les journaux.",
        "J'ai rangé les imports.",
        "La réunion sur {s} est reportée.",
        "Tu me fais un court résumé sur {s}?",
        "Le linter est content.",
        "Il me faut un café d'abord.",
        "Rien de neuf sur {s} aujourd'hui.",
        "Garde de petits commits, s'il te plaît.",
        "Quelle version utilise-t-on en ce moment?",
        "Il faudrait noter ce qu'on a décidé sur {s}.",
        "La base de données est lente aujourd'hui.",
        "Qui vérifie la compilation?",
        "La panne d'hier est finie.",
    ),
    ("janvier", "février", "mars", "avril", "mai", "juin"),
)
RUSSIAN = Language(
    "Russian",
    "russian",
    (
        ("счета", "счетов"),
        ("поставки", "поставок"),
        ("копии", "копий"),
        ("подписки", "подписок"),
        ("уведомления", "уведомлений"),
        ("переводы", "переводов"),
        ("бронирования", "бронирований"),
        ("платежи", "платежей"),
        ("склады", "складов"),
        ("рекомендации", "рекомендаций"),
    ),
    (
        Matter(
            "Теперь {s} хранятся в {v}.",
            "Где хранить {s}?",
            "место хранения {q}",
            "Ещё пара слов о выборе базы данных.",
            "в какой базе данных лежит список {q}",
        ),
        Matter(
            "{v} поддерживает {s} до лета.",
            "Кто поддерживает {s}?",
            "кто занимался поддержкой {q}",
            "Надо ещё назначить ответственного.",
            "назначенный ответственный для {q}",
        ),
        Matter(
            "{s} проверяются каждые {v} минут.",
            "Как часто проверять {s}?",
            "частота проверок {q}",
            "Давай определим интервал опроса.",
            "интервал опроса для {q}",
        ),
        Matter(
            "{s} сломались из-за {v}.",
            "Почему сломались {s}?",
            "из-за чего была поломка {q}",
            "Я искал причину сбоя.",
            "причины сбоев у {q}",
        ),
    ),
    ("Давай возьмём {v}.", "Я бы сказал, {v}.", "Насколько я знаю, {v}.", "Это {v}."),
    (
        "Думаю, на {s} стоит взглянуть ещё раз.",
        "Честно говоря, {s} выглядят хорошо.",
        "С тем, что касается {s}, я бы подождал неделю.",
        "Меня беспокоят {s}, цифры странные.",
    ),
    "что думал {n} насчёт {q}",
    "что говорили в {m} насчёт {q}",
    "что напечатал запуск {f}",
    "файл, который ты изменил после падения тестов {q}",
    "Запускаю тесты на {s}.",
    (
        "Хорошо, продолжай.",
        "Спасибо, это очень помогает.",
        "Сначала посмотрю журналы.",
        "Я прибрал импорты.",
        "Встречу про {s} перенесли.",
        "Сделай короткий обзор про {s}?",
        "Линтер доволен.",
        "Сначала мне нужен кофе.",
        "Про {s} сегодня ничего нового.",
        "Делай маленькие коммиты, пожалуйста.",
        "Какую версию мы используем сейчас?",
        "Надо записать, что решили про {s}.",
        "База данных сегодня медленная.",
        "Кто проверяет сборку?",
        "Вчерашний сбой закончился.",
    ),
    ("январе", "феврале", "марте", "апреле", "мае", "июне"),
)
TURKISH = Language(
    "Turkish",
    "turkish",
    (
        ("faturalar", "faturaların"),
        ("teslimatlar", "teslimatların"),
        ("yedekler", "yedeklerin"),
        ("abonelikler", "aboneliklerin"),
        ("bildirimler", "bildirimlerin"),
        ("çeviriler", "çevirilerin"),
        ("rezervasyonlar", "rezervasyonların"),
        ("ödemeler", "ödemelerin"),
        ("depolar", "depoların"),
        ("öneriler", "önerilerin"),
    ),
    (
        Matter(
            "Bundan sonra {s} {v} içinde saklanıyor.",
            "{s} nerede saklansın?",
            "{q} saklandığı yer",
            "Veritabanı seçimi hakkında bir şey daha.",
            "{q} bulunduğu veritabanı",
        ),
        Matter(
            "Yaza kadar {v} ile ilgileniyor: {s}.",
            "{s} ile kim ilgileniyor?",
            "{q} durumuyla ilgilenen kişi",
            "Bir sorumlu belirlememiz gerekiyor.",
            "{q} sorumlusu kim",
        ),
        Matter(
            "{s} her {v} dakikada kontrol ediliyor.",
            "{s} ne sıklıkla kontrol edilsin?",
            "{q} kontrolü ne kadar sık",
            "Sorgulama aralığını belirleyelim.",
            "{q} sorgulama aralığı",
        ),
        Matter(
            "{s} {v} yüzünden bozuldu.",
            "{s} neden bozuldu?",
            "{q} bozulmasına ne yol açtı",
            "Kesintinin nedenini araştırdım.",
            "{q} kesintisinin nedeni",
        ),
    ),
    ("{v} alalım.", "Bence {v}.", "Bildiğim kadarıyla {v}.", "O {v} olur."),
    (
        "Bence {s} bir kez daha incelenmeli.",
        "Açıkçası {s} bana iyi görünüyor.",
        "{s} için bir hafta daha beklerdim.",
        "{s} beni endişelendiriyor, sayılar tuhaf.",
    ),
    "{n} {q} hakkında ne düşünüyordu",
    "{m} ayında {q} hakkında ne söylendi",
    "{f} çalışınca ne yazdırdı",
    "{q} testleri başarısız olduktan sonra değiştirdiğin dosya",
    "Şimdi {s} için testleri çalıştırıyorum.",
    (
        "Tamam, devam et.",
        "Teşekkürler, çok yardımcı oldu.",
        "Önce günlüklere bakayım.",
        "İçe aktarmaları düzenledim.",
        "{s} hakkındaki toplantı ertelendi.",
        "Bana {s} hakkında kısa bir özet verir misin?",
        "Linter memnun.",
        "Önce bir kahve lazım.",
        "Bugün {s} hakkında yeni bir şey yok.",
        "Lütfen commitleri küçük tut.",
        "Şu anda hangi sürümü kullanıyoruz?",
        "{s} hakkında neye karar verdiğimizi yazmalıyız.",
        "Veritabanı bugün yavaş.",
        "Derlemeyi kim kontrol ediyor?",
        "Dünkü kesinti bitti.",
    ),
    ("ocak", "şubat", "mart", "nisan", "mayıs", "haziran"),
)
ARABIC = Language(
    "Arabic",
    "arabic",
    (
        ("الفواتير", "فواتير"),
        ("الشحنات", "شحنات"),
        ("النسخ", "نسخ"),
        ("الاشتراكات", "اشتراكات"),
        ("الإشعارات", "إشعارات"),
        ("الترجمات", "ترجمات"),
        ("الحجوزات", "حجوزات"),
        ("المدفوعات", "مدفوعات"),
        ("المخازن", "مخازن"),
        ("التوصيات", "توصيات"),
    ),
    (
        Matter(
            "من الآن {s} محفوظة في {v}.",
            "أين تكون {s} محفوظة؟",
            "مكان حفظ {q} المحفوظة",
            "شيء آخر عن اختيار قاعدة البيانات.",
            "قاعدة البيانات التي فيها {q}",
        ),
        Matter(
            "يهتم {v} بـ {s} حتى الصيف.",
            "من يهتم بـ {s}؟",
            "من كان مهتما ويهتم بأمر {q}",
            "يجب أن نعين شخصا مسؤولا.",
            "الشخص المسؤول عن {q}",
        ),
        Matter(
            "نفحص {s} كل {v} دقيقة.",
            "كم مرة نفحص {s}؟",
            "عدد مرات فحص {q}",
            "لنحدد فترة الاستعلام.",
            "فترة الاستعلامات عن {q}",
        ),
        Matter(
            "تعطلت {s} بسبب {v}.", "لماذا تعطلت {s}؟", "كيف تعطل عمل {q}", "بحثت عن مصدر الانقطاع.", "مصدر انقطاع {q}"
        ),
    ),
    ("لنأخذ {v}.", "أقول {v}.", "حسب علمي {v}.", "سيكون {v}."),
    (
        "أظن أن {s} تحتاج إلى نظرة ثانية.",
        "بصراحة {s} تبدو جيدة.",
        "مع {s} سأنتظر أسبوعا آخر.",
        "تقلقني {s} والأرقام غريبة.",
    ),
    "ما رأي {n} في {q}",
    "ماذا قيل في {m} عن {q}",
    "ماذا طبع {f} عند التشغيل",
    "الملف الذي غيرته بعد فشل اختبارات {q}",
    "أشغل الآن اختبارات {s}.",
    (
        "حسنا تابع.",
        "شكرا هذا يساعد كثيرا.",
        "سأنظر أولا في السجلات.",
        "رتبت الاستيرادات.",
        "تأجل الاجتماع عن {s}.",
        "هل تعطيني ملخصا قصيرا عن {s}؟",
        "الفاحص راض.",
        "أحتاج قهوة أولا.",
        "لا جديد عن {s} اليوم.",
        "اجعل الإيداعات صغيرة من فضلك.",
        "أي إصدار نستخدم الآن؟",
        "يجب أن نكتب ما قررناه عن {s}.",
        "قاعدة البيانات بطيئة اليوم.",
        "من يفحص البناء؟",
        "انتهى انقطاع أمس.",
    ),
    ("يناير", "فبراير", "مارس", "أبريل", "مايو", "يونيو"),
)
CHINESE = Language(
    "Chinese",
    None,
    (
        ("发票", "发票"),
        ("货物", "货物"),
        ("备份", "备份"),
        ("订阅", "订阅"),
        ("通知", "通知"),
        ("翻译", "翻译"),
        ("预订", "预订"),
        ("付款", "付款"),
        ("仓库", "仓库"),
        ("推荐", "推荐"),
    ),
    (
        Matter(
            "从现在起{s}存放在{v}里。",
            "{s}应该存放在哪里？",
            "我们把{q}存放到哪儿了",
            "再说一下数据库的选择。",
            "哪个数据库里有{q}",
        ),
        Matter("夏天之前由{v}照看{s}。", "谁来照看{s}？", "照看过{q}的人是谁", "还要指定一个负责人。", "{q}的负责人"),
        Matter(
            "{s}每{v}分钟检查一次。",
            "多久检查一次{s}？",
            "检查{q}有多频繁",
            "来定一下轮询的间隔。",
            "{q}的轮询间隔是多少",
        ),
        Matter("{s}坏了，因为{v}。", "{s}为什么坏了？", "是什么让{q}坏掉的", "我找了故障的根源。", "{q}故障根源是什么"),
    ),
    ("就用{v}吧。", "我会说{v}。", "据我所知是{v}。", "应该是{v}。"),
    ("我觉得{s}要再看一遍。", "说实话{s}看起来不错。", "{s}我会再等一周。", "我担心{s}，数字很奇怪。"),
    "{n}对{q}怎么看",
    "{m}的时候关于{q}说了什么",
    "{f}运行的时候打印了什么",
    "{q}的测试失败以后你修改的文件",
    "我现在运行{s}的测试。",
    (
        "好的，继续。",
        "谢谢，很有帮助。",
        "我先看看日志。",
        "我整理了导入。",
        "关于{s}的会议推迟了。",
        "能给我一个{s}的简短概述吗？",
        "检查器满意了。",
        "我先喝杯咖啡。",
        "今天{s}没有新消息。",
        "请让提交小一点。",
        "现在用的是哪个版本？",
        "应该记下关于{s}的决定。",
        "数据库今天很慢。",
        "谁检查构建？",
        "昨天的故障结束了。",
    ),
    ("1月", "2月", "3月", "4月", "5月", "6月"),
)
LANGUAGES = (ENGLISH, GERMAN, SPANISH, FRENCH, RUSSIAN, TURKISH, ARABIC, CHINESE)
