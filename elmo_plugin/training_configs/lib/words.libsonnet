// Context-independent embeddings of words, and what a reader needs for them.
{
  indexers(lowercase=true):: { tokens: { type: 'single_id', lowercase_tokens: lowercase } },

  // word_vectors: a file or URL in GloVe's text format, of width `dim`; null starts them at random.
  embedders(word_vectors, dim, trainable):: {
    tokens: {
      type: 'embedding',
      embedding_dim: dim,
      [if word_vectors != null then 'pretrained_file']: word_vectors,
      trainable: trainable,
    },
  },

  // Of an experiment whose vectors of words start at random: words that are counted once in the training data share a
  // vector with all that are not in them, so that it is trained. Words, characters and labels that only other data have
  // would keep random weights. AllenNLP counts the words of each instance: those of a sentence once for each predicate,
  // of a passage for each question, of a premise for each hypothesis.
  vocabulary(word_vectors):: if word_vectors != null then {} else {
    vocabulary+: { min_count+: { tokens: 2 } },
    datasets_for_vocab_creation: ['train'],
  },

  // With marks around it: AllenNLP's encoder leaves out windows with padding, and a word that is shorter than a filter
  // would have zeros for it.
  character_indexers(filter_widths):: {
    local widest_filter = std.foldl(std.max, filter_widths, 0),
    local num_marks = std.floor(widest_filter / 2),
    token_characters: {
      type: 'elmo_word_characters',
      min_padding_length: widest_filter,
      character_tokenizer: {
        start_tokens: std.repeat(['<w>'], num_marks),
        end_tokens: std.repeat(['</w>'], num_marks),
      },
    },
  },

  // Convolutions over the characters of a word, with the maximum over time.
  character_embedders(dim, num_filters, filter_widths, dropout=0.0):: {
    token_characters: {
      type: 'character_encoding',
      embedding: { embedding_dim: dim, vocab_namespace: 'token_characters' },
      encoder: {
        type: 'cnn',
        embedding_dim: dim,
        num_filters: num_filters,
        ngram_filter_sizes: filter_widths,
        conv_layer_activation: 'relu',
      },
      dropout: dropout,
    },
  },
}
