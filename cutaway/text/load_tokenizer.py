"""From a checkpoint to its tokenizer. Apart from the template's loader, so that who renders nothing starts fast."""

from cutaway.text.gguf_vocab import read_gguf_vocabulary
from cutaway.text.hf_tokenizer import HFTokenizer
from cutaway.text.tokenizer import Tokenizer
from cutaway.text.tokenizer_json import read_folder_vocabulary, read_tokenizer_folder
from cutaway.weights.checkpoint import Checkpoint


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Build what turns text into ids and back.

    Raises:
        ModelError: a file cannot be read.
        CorruptFile: the files are malformed or contradict each other.
        UnsupportedModel: a kind of vocabulary that is not known.
    """
    if checkpoint.format == "gguf":
        return HFTokenizer(read_gguf_vocabulary(checkpoint.metadata))
    return HFTokenizer(read_folder_vocabulary(read_tokenizer_folder(checkpoint.path, checkpoint.metadata)))
