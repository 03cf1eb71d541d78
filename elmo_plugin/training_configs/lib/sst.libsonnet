// SST: a biattentive classification network over word vectors and ELMo.
local data_files = import 'data.libsonnet';
local elmo = import 'elmo.libsonnet';
local words = import 'words.libsonnet';

{
  // Trees, one per line, in files called `train`, `dev` and `test` in a folder.
  files:: data_files.files,

  // word_vectors: a file or URL in GloVe's text format, of width word_dim; null starts them at random.
  // min_phrase_length: of the phrases to train on besides sentences; null trains on sentences alone.
  experiment(
    data,
    elmo_part,
    word_vectors,
    word_dim=300,
    train_word_vectors=false,
    lowercase=false,
    min_phrase_length=4,
    rnn_size=300,
    output_dims=[1200, 600],
    output_dropout=[0.2, 0.3],
    dropout=0.5,
    pre_encode_dropout=0.25,
    batch_size=100,
    learning_rate=0.0001,
    num_epochs=40,
    patience=5,
  )::
    local sentence_reader = {
      type: 'elmo_sst',
      granularity: '5-class',
      token_indexers: words.indexers(lowercase) + elmo.indexers,
    };
    // Widths follow from the parts before them and from ELMo's placement.
    local bilstm = { type: 'lstm', hidden_size: rnn_size, bidirectional: true };
    local relu_layers(hidden_dims, dropout) = {
      num_layers: std.length(hidden_dims),
      hidden_dims: hidden_dims,
      activations: 'relu',
      dropout: dropout,
    };
    {
      dataset_reader: sentence_reader { min_phrase_length: min_phrase_length },
      validation_dataset_reader: sentence_reader,

      model: {
        type: 'elmo_sst',
        text_encoder: {
          text_field_embedder: {
            token_embedders: words.embedders(word_vectors, word_dim, train_word_vectors),
          },
          elmo: elmo_part,
          encoder: {
            type: 'elmo_stack',
            encoders: [
              {
                type: 'elmo_feedforward',
                feedforward: relu_layers([rnn_size], pre_encode_dropout),
              },
              bilstm,
            ],
          },
          dropout: dropout,
        },
        integrator: bilstm,
        output_layer: relu_layers(output_dims, output_dropout),
        dropout: 0.1,
        regularizer: elmo.regularizer(0.001),
        // For relu layers (He et al. 2015). With PyTorch's initial values the signal fades from layer to layer, and
        // small models predict the most frequent class for some hundred batches.
        initializer: { regexes: [['_linear_layers.*weight', { type: 'kaiming_uniform' }]] },
      },

      trainer: {
        optimizer: { type: 'adam', lr: learning_rate },
        grad_norm: 5.0,
      },
    } + words.vocabulary(word_vectors) + data_files.experiment(data, num_epochs, patience, '+accuracy')
      + data_files.loaders(batch_size, ['tokens']),
}
